//! Numbers that kernels get with a launch.

use hipdnn_schemas::DataType;

/// A kernel's scalar.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scalar {
    Known(f64),
    /// In the caller's host memory, by the index of its buffer.
    Host(usize, DataType),
}

impl Scalar {
    /// Its value for an execution.
    ///
    /// # Safety
    /// Each address is null or that of what hipDNN passes for the tensor: host memory for a run-time scalar.
    pub(super) unsafe fn value(self, addresses: &[*mut u8]) -> f64 {
        match self {
            Scalar::Known(number) => number,
            // SAFETY: the caller's promise; a buffer that is required is not null.
            Scalar::Host(index, data_type) => unsafe { read(addresses[index], data_type) },
        }
    }
}

/// Values for a kernel's scalars; empty if all are known.
pub(super) fn scalars(list: impl Iterator<Item = Scalar>) -> Box<[Scalar]> {
    let list: Box<[Scalar]> = list.collect();
    if list.iter().all(|scalar| matches!(scalar, Scalar::Known(_))) { Box::default() } else { list }
}

/// Reads a scalar from host memory.
///
/// # Safety
/// The address has a value of the type; it need not be aligned.
pub(super) unsafe fn read(address: *const u8, data_type: DataType) -> f64 {
    // SAFETY: the caller's promise; any bytes are values of these types.
    unsafe {
        match data_type {
            DataType::Float => f64::from(address.cast::<f32>().read_unaligned()),
            DataType::Half => half::f16::from_bits(address.cast::<u16>().read_unaligned()).to_f64(),
            DataType::BFloat16 => half::bf16::from_bits(address.cast::<u16>().read_unaligned()).to_f64(),
            DataType::Double => address.cast::<f64>().read_unaligned(),
            DataType::Int32 => f64::from(address.cast::<i32>().read_unaligned()),
            DataType::Int64 => address.cast::<i64>().read_unaligned() as f64,
            DataType::Int8 => f64::from(address.cast::<i8>().read()),
            DataType::UInt8 => f64::from(address.read()),
            DataType::Boolean => f64::from(u8::from(address.read() != 0)),
            other => unreachable!("operands of {other} are declined"),
        }
    }
}
