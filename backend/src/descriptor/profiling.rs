//! Profiling controls: the time of what is executed between two calls, for a client's autotuning.
//!
//! hipDNN's newest can also hold a stream back until all of its work is submitted; the numbers of those attributes are not
//! published, so they are unknown here, and times include gaps between submissions.

use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};

use super::staged::Staged;
use super::{required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::error::{Error, Result};
use crate::handle;
use crate::timer::{self, Timer};

/// `HIPDNN_BACKEND_PROFILING_CONTROL_EXT`; finalized, it is a time in milliseconds.
#[derive(Default)]
pub(crate) struct ProfilingControl(Staged<Option<Timer>, f32>);

impl ProfilingControl {
    /// Setting an attribute is the command, whatever the boolean is.
    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut timer = self.0.edit()?;
        match name {
            AttributeName::PROFILING_HANDLE_EXT => {
                let stream = handle::find(elements.handle()?)?.resources.stream();
                // A second handle changes nothing that was recorded.
                if timer.is_none() {
                    *timer = Some(Timer::new(stream)?);
                }
                return Ok(());
            }
            AttributeName::PROFILING_DEVICE_SYNC_EXT => {
                elements.boolean()?;
                return timer::synchronize_device(timer.as_ref().map_or(std::ptr::null_mut(), Timer::stream));
            }
            AttributeName::PROFILING_START_EXT | AttributeName::PROFILING_STOP_EXT => elements.boolean()?,
            _ => return Err(unhandled(name)),
        };
        let timer = timer.as_mut().ok_or_else(|| Error::bad_param("the handle has to be set before events"))?;
        if name == AttributeName::PROFILING_START_EXT { timer.start() } else { timer.stop() }
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let milliseconds = self.0.read()?;
        match name {
            AttributeName::PROFILING_ELAPSED_MS_EXT => output.scalar(AttributeType::FLOAT, *milliseconds),
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.0.expect_unfinished()?;
        let milliseconds = required(self.0.draft().as_ref(), AttributeName::PROFILING_HANDLE_EXT)?.elapsed()?;
        self.0.finish(milliseconds)
    }
}
