//! What a device can do a second.
//!
//! A host tells the number of compute units, the memory's size and the architecture (hipDNN's `DeviceProperties`);
//! rates of a GPU are those of the vendor's data sheets for the largest product of an architecture, scaled by its
//! compute units.

use hipdnn_schemas::DeviceProperties;

/// The number of host memory among devices.
pub const HOST: i32 = -1;

/// Rates of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Name by which measurements are kept: what they are true of.
    pub name: String,
    /// Architecture without its features, such as `gfx942`.
    pub architecture: String,
    /// True for the host.
    pub is_host: bool,
    /// Compute units, or threads.
    pub units: f64,
    /// Operations a second of one unit in `f32`: a multiply-add is two.
    pub unit_rate: f64,
    /// How many times as fast a unit is with matrix instructions in 16 bits.
    pub half_factor: f64,
    /// Bytes a second of memory.
    pub bandwidth: f64,
    /// Bytes a second of one unit alone.
    pub unit_bandwidth: f64,
    /// Bytes of the last cache, and how many times as fast as memory it is.
    pub cache: (f64, f64),
}

/// Data sheet of an architecture's largest product: units, GHz, operations of a unit a clock in f32 and with matrix
/// instructions in 16 bits, GB/s of memory, MiB of the last cache.
struct Sheet(&'static str, f64, f64, f64, f64, f64, f64);

/// AMD's data sheets of, in this order: Instinct MI50, MI100, MI250X (one of its two dies), MI300X, MI355X; Radeon RX
/// 6900 XT, RX 7900 XTX, RX 7800 XT, RX 9060 XT and RX 9070 XT.
const SHEETS: [Sheet; 10] = [
    Sheet("gfx906", 60.0, 1.725, 128.0, 256.0, 1024.0, 4.0),
    Sheet("gfx908", 120.0, 1.502, 128.0, 1024.0, 1229.0, 8.0),
    Sheet("gfx90a", 110.0, 1.7, 128.0, 1024.0, 1638.0, 8.0),
    Sheet("gfx942", 304.0, 2.1, 256.0, 2048.0, 5300.0, 256.0),
    Sheet("gfx950", 256.0, 2.4, 256.0, 4096.0, 8000.0, 256.0),
    Sheet("gfx1030", 80.0, 2.25, 128.0, 256.0, 512.0, 128.0),
    Sheet("gfx1100", 96.0, 2.5, 256.0, 512.0, 960.0, 96.0),
    Sheet("gfx1101", 60.0, 2.43, 256.0, 512.0, 624.0, 64.0),
    Sheet("gfx1200", 32.0, 3.13, 256.0, 1024.0, 322.0, 32.0),
    Sheet("gfx1201", 64.0, 2.97, 256.0, 1024.0, 645.0, 64.0),
];

/// How many times as fast as memory a GPU's last cache is taken to be.
const GPU_CACHE: f64 = 2.5;

impl Device {
    /// The device that a host describes.
    pub fn of(properties: &DeviceProperties) -> Device {
        let units = f64::from(properties.multi_processor_count.clamp(1, 1 << 16));
        if properties.device_id == HOST {
            return Device::host(units);
        }
        let architecture = properties.architecture_name.split(':').next().unwrap_or_default().to_owned();
        // One that came later is taken for the newest of its family.
        let exact = SHEETS.iter().find(|sheet| sheet.0 == architecture);
        let family = || SHEETS.iter().rev().find(|sheet| architecture.starts_with(&sheet.0[..sheet.0.len() - 2]));
        let Sheet(_, most, clock, operations, matrix, bandwidth, cache) =
            exact.or_else(family).unwrap_or(&SHEETS[SHEETS.len() - 4]);
        let share = (units / most).min(1.0);
        let name: String = architecture.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
        Device {
            name: format!("{name}-{units}"),
            architecture,
            is_host: false,
            units,
            unit_rate: clock * 1e9 * operations,
            half_factor: matrix / operations,
            // A product with fewer units has a narrower memory, too, but not in proportion.
            bandwidth: bandwidth * 1e9 * share.sqrt(),
            unit_bandwidth: bandwidth * 1e9 / most * 2.0,
            cache: (cache * f64::from(1 << 20), GPU_CACHE),
        }
    }

    /// The CPU that this process runs on, with so many threads.
    fn host(threads: f64) -> Device {
        let (name, lanes) = instruction_set();
        Device {
            name: format!("{}-{name}-{threads}", std::env::consts::ARCH),
            architecture: std::env::consts::ARCH.to_owned(),
            is_host: true,
            units: threads,
            // Two multiply-adds a clock and lane.
            unit_rate: clock() * lanes * 4.0,
            half_factor: 1.0,
            bandwidth: UNIT_BANDWIDTH * threads.min(8.0),
            unit_bandwidth: UNIT_BANDWIDTH,
            cache: (cache(), 4.0),
        }
    }
}

/// Bytes a second that one thread gets of a host's memory: what servers and laptops have in common, since no fact of
/// the operating system tells it.
const UNIT_BANDWIDTH: f64 = 10e9;

/// The widest vectors of this CPU, and their lanes of `f32`.
fn instruction_set() -> (&'static str, f64) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        return ("avx512", 16.0);
    } else if std::arch::is_x86_feature_detected!("avx2") {
        return ("avx2", 8.0);
    }
    ("baseline", 4.0)
}

/// This CPU's clock in Hz: its largest, else its present one, else a guess.
fn clock() -> f64 {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<f64>().ok();
    let largest = number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").map(|kilohertz| kilohertz * 1e3);
    let present = || {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
        Some(line.split(':').nth(1)?.trim().parse::<f64>().ok()? * 1e6)
    };
    let sane = |hertz: &f64| (5e8..1e10).contains(hertz);
    largest.filter(sane).or_else(|| present().filter(sane)).unwrap_or(2.5e9)
}

/// Bytes of this CPU's largest cache.
fn cache() -> f64 {
    let size = |index: usize| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        let text = text.trim();
        let (digits, factor) = match text.strip_suffix('K') {
            Some(digits) => (digits, 1024.0),
            None => (text.strip_suffix('M')?, 1024.0 * 1024.0),
        };
        Some(digits.parse::<f64>().ok()? * factor)
    };
    (0..8).filter_map(size).fold(1024.0 * 1024.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(architecture: &str, units: i32) -> Device {
        Device::of(&DeviceProperties {
            device_id: 0,
            multi_processor_count: units,
            total_global_mem: 1 << 35,
            architecture_name: architecture.to_owned(),
        })
    }

    #[test]
    fn rates_are_those_of_the_data_sheets() {
        // TFLOPS in f32 and in 16 bits with matrix instructions, as AMD publishes them.
        for (architecture, units, single, half) in [
            ("gfx942:sramecc+:xnack-", 304, 163.4, 1307.4),
            ("gfx908", 120, 23.1, 184.6),
            ("gfx1100", 96, 61.4, 122.8),
            ("gfx1201", 64, 48.7, 195.0),
        ] {
            let device = gpu(architecture, units);
            let rate = device.units * device.unit_rate / 1e12;
            assert!((rate - single).abs() < 0.02 * single, "{architecture}: {rate}");
            let rate = rate * device.half_factor;
            assert!((rate - half).abs() < 0.02 * half, "{architecture}: {rate}");
        }
    }

    #[test]
    fn unknown_architectures_have_rates_too() {
        for (architecture, like) in
            [("gfx1202", "gfx1201"), ("gfx955", "gfx950"), ("nothing", "gfx1100"), ("", "gfx1100")]
        {
            let (unknown, known) = (gpu(architecture, 32), gpu(like, 32));
            assert_eq!((unknown.unit_rate, unknown.bandwidth), (known.unit_rate, known.bandwidth), "{architecture}");
        }
    }

    #[test]
    fn names_are_those_of_folders() {
        assert_eq!(gpu("gfx942:sramecc+", 304).name, "gfx942-304");
        assert_eq!(gpu("../../etc", 3).name, "etc-3");
        let host = Device::of(&DeviceProperties {
            device_id: HOST,
            multi_processor_count: 2,
            total_global_mem: 0,
            architecture_name: String::new(),
        });
        assert!(host.is_host && host.unit_rate > 1e9 && host.cache.0 >= 1024.0 * 1024.0, "{host:?}");
        assert!(host.name.ends_with("-2"), "{host:?}");
    }
}
