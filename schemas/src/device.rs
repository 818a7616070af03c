//! Facts of a device, as hosts tell them to heuristics plugins.

use flatbuffers::FlatBufferBuilder;

use crate::GraphError;
use crate::generated as fb;
use crate::read::root;
use crate::write::finish;

/// File identifier of serialized device properties.
const IDENTIFIER: &str = "HDDP";

/// Facts of a device that engines are ranked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// HIP's number of the device; -1 for host memory.
    pub device_id: i32,
    /// Number of compute units, or of the host's threads.
    pub multi_processor_count: i32,
    /// Memory, in bytes.
    pub total_global_mem: u64,
    /// Architecture, such as `gfx942:sramecc+:xnack-`, or the host's, such as `x86_64`.
    pub architecture_name: String,
}

impl DeviceProperties {
    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the bytes are not device properties.
    pub fn from_bytes(bytes: &[u8]) -> Result<DeviceProperties, GraphError> {
        let properties = root::<fb::DeviceProperties>(bytes)?;
        Ok(DeviceProperties {
            device_id: properties.device_id(),
            multi_processor_count: properties.multi_processor_count(),
            total_global_mem: properties.total_global_mem(),
            architecture_name: properties.architecture_name().unwrap_or_default().to_owned(),
        })
    }

    /// As a FlatBuffer with hipDNN's file identifier.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let architecture_name = Some(fbb.create_string(&self.architecture_name));
        let args = fb::DevicePropertiesArgs {
            device_id: self.device_id,
            multi_processor_count: self.multi_processor_count,
            total_global_mem: self.total_global_mem,
            architecture_name,
        };
        let properties = fb::DeviceProperties::create(&mut fbb, &args);
        finish(fbb, properties, Some(IDENTIFIER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_round_trip() {
        for (device_id, architecture_name) in [(-1, "x86_64"), (3, "gfx942:sramecc+:xnack-")] {
            let architecture_name = architecture_name.to_owned();
            let properties = DeviceProperties {
                device_id,
                multi_processor_count: 304,
                total_global_mem: 1 << 40,
                architecture_name,
            };
            let bytes = properties.to_bytes();
            assert_eq!(&bytes[4..8], IDENTIFIER.as_bytes());
            assert_eq!(DeviceProperties::from_bytes(&bytes), Ok(properties));
        }
        assert!(DeviceProperties::from_bytes(b"HDDPHDDP").is_err());
    }
}
