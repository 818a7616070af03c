//! Streams that the calling thread's runs have enqueued work on: those that the end of a run waits for.
//!
//! The runtime tells a run's beginning and end on one thread, but the end of a run that failed not in every case, and a run's
//! nodes may be on other threads. So what is noted here is words, which keep no stream alive and may be stale.

use std::cell::Cell;

/// Devices whose runs are noted; of others nothing is known.
const DEVICES: usize = 8;

/// Most streams of a run that are noted; of a run with more nothing is known.
const STREAMS: usize = 4;

/// In the first place of a device: no run is known.
const UNKNOWN: usize = 0;

/// In the first place: a run that has used no stream yet. No stream has that address.
const BEGUN: usize = 1;

thread_local! {
    /// Addresses of streams, by device. Plain words: what a thread's end would have to drop would keep the library loaded.
    static NOTED: [[Cell<usize>; STREAMS]; DEVICES] = const { [const { [const { Cell::new(UNKNOWN) }; STREAMS] }; DEVICES] };
}

/// Result of `body` with the places of a device, if there are some.
fn with<R>(device: usize, body: impl FnOnce(&[Cell<usize>; STREAMS]) -> R) -> Option<R> {
    (device < DEVICES).then(|| NOTED.with(|noted| body(&noted[device])))
}

/// A run of the calling thread begins on a device.
pub(super) fn begin(device: usize) {
    with(device, |streams| {
        streams.iter().for_each(|stream| stream.set(0));
        streams[0].set(BEGUN);
    });
}

/// Takes note of a stream of a device, if a run began there.
pub(super) fn note(device: usize, stream: usize) {
    with(device, |streams| {
        if streams[0].get() == BEGUN {
            return streams[0].set(stream);
        }
        if streams[0].get() == UNKNOWN {
            return;
        }
        match streams.iter().find(|known| known.get() == stream || known.get() == 0) {
            Some(place) => place.set(stream),
            None => streams[0].set(UNKNOWN),
        }
    });
}

/// The streams that the run has used, which is over; `None` if that is not known, or there are none.
pub(super) fn end(device: usize) -> Option<impl Fn(usize) -> bool> {
    let streams = with(device, |streams| {
        let known = streams.each_ref().map(Cell::get);
        streams[0].set(UNKNOWN);
        known
    });
    let streams = streams.filter(|streams| ![UNKNOWN, BEGUN].contains(&streams[0]))?;
    Some(move |stream| streams.contains(&stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The streams of those given that the end of a run on a device waits for.
    fn ended(device: usize, streams: &[usize]) -> Option<Vec<usize>> {
        end(device).map(|used| streams.iter().copied().filter(|stream| used(*stream)).collect())
    }

    #[test]
    fn a_run_s_streams_are_those_since_it_began() {
        let all = [16, 32, 48, 64, 80];
        note(0, 16);
        assert_eq!(ended(0, &all), None, "no run began");
        begin(0);
        assert_eq!(ended(0, &all), None, "it used none");
        begin(0);
        for stream in [32, 16, 32] {
            note(0, stream);
        }
        assert_eq!(ended(0, &all), Some(vec![16, 32]));
        assert_eq!(ended(0, &all), None, "it is over");
        begin(0);
        note(0, 48);
        begin(0);
        note(0, 64);
        assert_eq!(ended(0, &all), Some(vec![64]), "the end of the first was not told");
    }

    #[test]
    fn runs_on_several_devices_and_threads_are_apart() {
        begin(0);
        begin(1);
        note(0, 16);
        note(1, 32);
        std::thread::spawn(|| {
            note(0, 48);
            assert_eq!(ended(0, &[48]), None);
        })
        .join()
        .unwrap();
        assert_eq!((ended(1, &[16, 32]), ended(0, &[16, 32, 48])), (Some(vec![32]), Some(vec![16])));
    }

    #[test]
    fn of_more_than_there_is_room_for_nothing_is_known() {
        begin(2);
        (1..=STREAMS).for_each(|stream| note(2, 16 * stream));
        assert!(ended(2, &[16]).is_some());
        begin(2);
        (1..=STREAMS + 1).for_each(|stream| note(2, 16 * stream));
        note(2, 16);
        assert!(ended(2, &[16]).is_none());
        begin(DEVICES);
        note(DEVICES, 16);
        assert!(ended(DEVICES, &[16]).is_none());
    }

    #[test]
    fn a_run_within_a_run_leaves_the_outer_one_unknown() {
        begin(3);
        note(3, 16);
        begin(3);
        note(3, 32);
        assert_eq!(ended(3, &[16, 32]), Some(vec![32]));
        note(3, 48);
        assert_eq!(ended(3, &[16, 48]), None);
    }
}
