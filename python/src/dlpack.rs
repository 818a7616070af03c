//! Tensors that Python lends by DLPack (`__dlpack__`), of either form of the protocol. Layouts are those of `dlpack.h` 1.1.

use std::ffi::{CStr, c_void};

use hipdnn_schemas::{DataType, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};

/// `DLDevice`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    kind: i32,
    index: i32,
}

impl Device {
    /// `kDLCPU` and `kDLROCMHost`: the host reads and writes both.
    const HOST: [i32; 2] = [1, 11];
    /// `kDLROCM`
    const ROCM: i32 = 10;

    /// Number of the GPU, if it is one.
    fn gpu(self) -> Option<i32> {
        (self.kind == Device::ROCM).then_some(self.index)
    }
}

/// Memory that a tensor has to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The host's.
    Host,
    /// An AMD GPU's.
    Rocm,
}

impl Place {
    fn has(self, device: Device) -> bool {
        match self {
            Place::Host => Device::HOST.contains(&device.kind),
            Place::Rocm => device.kind == Device::ROCM,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Place::Host => "the host's memory",
            Place::Rocm => "an AMD GPU's memory (DLPack device 10)",
        }
    }
}

/// `DLDataType`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Element {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`
#[repr(C)]
struct Lent {
    data: *mut c_void,
    device: Device,
    rank: i32,
    element: Element,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned`
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *const c_void,
    flags: u64,
    tensor: Lent,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`
const READ_ONLY: u64 = 1;
/// `DLPACK_MAJOR_VERSION`
const MAJOR: u32 = 1;
/// Code of unsigned integers, which also stand for the bits of types that a producer has no name for.
const UNSIGNED: u8 = 1;

/// The code of a type's elements; `None` if they are no whole bytes.
fn code(data_type: DataType) -> Option<u8> {
    Some(match data_type {
        DataType::Int8 | DataType::Int32 | DataType::Int64 => 0,
        DataType::UInt8 => UNSIGNED,
        DataType::Half | DataType::Float | DataType::Double => 2,
        DataType::BFloat16 => 4,
        DataType::Boolean => 6,
        DataType::Fp8E4M3 => 10,
        DataType::Fp8E4M3Fnuz => 11,
        DataType::Fp8E5M2 => 12,
        DataType::Fp8E5M2Fnuz => 13,
        DataType::Fp8E8M0 => 14,
        DataType::Unset | DataType::Fp4E2M1 | DataType::Fp6E2M3 | DataType::Fp6E3M2 | DataType::Int4 => return None,
    })
}

impl Element {
    /// True if these are the type's elements, or unsigned integers with the bits of ones that have no name in NumPy.
    fn is(self, data_type: DataType) -> bool {
        let bits = data_type.bits().unwrap_or(0);
        let nameless = code(data_type).is_some_and(|code| code == 4 || code >= 10);
        let fits = Some(self.code) == code(data_type) || (nameless && self.code == UNSIGNED);
        fits && u32::from(self.bits) == bits && self.lanes == 1
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.code {
            0 => "int",
            UNSIGNED => "uint",
            2 => "float",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            code => return write!(f, "DLPack type {code} of {} bits", self.bits),
        };
        write!(f, "{kind}{}", self.bits)?;
        if self.lanes != 1 { write!(f, "x{}", self.lanes) } else { Ok(()) }
    }
}

/// Memory of a tensor, borrowed from its producer until it is dropped.
pub(crate) struct Borrowed {
    /// First element.
    pub(crate) address: *mut c_void,
    /// Bytes from the first to the last element.
    pub(crate) bytes: usize,
    /// Number of the GPU whose memory it is; `None` for the host's.
    pub(crate) device: Option<i32>,
    /// The producer's capsule, which frees what it lends when it is dropped.
    _capsule: Py<PyAny>,
}

/// Borrows the tensor of an object, and checks that it is what the graph says: type, extents, strides, alignment, place.
///
/// # Errors
/// With the tensor's name, what was expected and what came.
pub(crate) fn borrow(
    object: &Bound<'_, PyAny>,
    tensor: &Tensor,
    place: Place,
    is_written: bool,
    stream: Option<usize>,
) -> PyResult<Borrowed> {
    let label = label(tensor);
    let wrong = |text: String| PyValueError::new_err(format!("{label}: {text}"));
    let (capsule, lent, read_only) = lent(object, &label, stream)?;
    // SAFETY: the producer's tensor is whole as long as the capsule, which is held until the function returns or by the result.
    let lent = unsafe { &*lent };
    let data_type = tensor.data_type();
    if !lent.element.is(data_type) {
        return Err(wrong(format!("expected elements of type {data_type}, got {}", lent.element)));
    }
    let rank = usize::try_from(lent.rank).map_err(|_| wrong(format!("expected a rank, got {}", lent.rank)))?;
    // SAFETY: a tensor of a rank above zero has as many extents, and, if any, strides.
    let (shape, strides) = unsafe { (numbers(lent.shape, rank), numbers(lent.strides, rank)) };
    let dims = &tensor.def().dims;
    let shape = shape.unwrap_or(&[]);
    if shape != dims.as_slice() {
        return Err(wrong(format!("expected shape {dims:?}, got {shape:?}")));
    }
    let packed = hipdnn_schemas::packed_strides(dims);
    let (wanted, strides) = (&tensor.def().strides, strides.unwrap_or(&packed));
    let same = dims.iter().zip(wanted.iter().zip(strides)).all(|(extent, (want, got))| *extent == 1 || want == got);
    if !same {
        return Err(wrong(format!(
            "expected strides {wanted:?} in elements, got {strides:?}; declare these in the graph, or copy the array"
        )));
    }
    if !place.has(lent.device) {
        let Device { kind, index } = lent.device;
        return Err(wrong(format!("expected {}, got DLPack device {kind}:{index}", place.text())));
    }
    if is_written && read_only {
        return Err(wrong("expected memory that may be written, got a read-only array".to_string()));
    }
    let offset =
        usize::try_from(lent.byte_offset).map_err(|_| wrong("its offset does not fit in memory".to_string()))?;
    let address = lent.data.wrapping_byte_add(offset);
    let alignment = tensor.alignment().max(1) as usize;
    if address.addr() % alignment != 0 || address.is_null() {
        return Err(wrong(format!("expected an address that is a multiple of {alignment}, got {address:p}")));
    }
    Ok(Borrowed { address, bytes: tensor.span_bytes(), device: lent.device.gpu(), _capsule: capsule })
}

/// Borrows at least `bytes` bytes of any type, packed, for a plan to work in.
///
/// # Errors
/// If it is less, strided or elsewhere.
pub(crate) fn workspace(
    object: &Bound<'_, PyAny>,
    bytes: usize,
    place: Place,
    stream: Option<usize>,
) -> PyResult<Borrowed> {
    let (capsule, lent, read_only) = lent(object, "workspace", stream)?;
    // SAFETY: the capsule, which lives until this function returns at least, owns what is lent.
    let lent = unsafe { &*lent };
    let rank = usize::try_from(lent.rank).unwrap_or(0);
    // SAFETY: a tensor of a rank above zero has as many extents, and, if any, strides.
    let (shape, strides) = unsafe { (numbers(lent.shape, rank).unwrap_or(&[]), numbers(lent.strides, rank)) };
    let packed = hipdnn_schemas::packed_strides(shape);
    let is_packed = strides.is_none_or(|strides| *strides == *packed);
    let elements = shape.iter().try_fold(1usize, |all, extent| all.checked_mul(usize::try_from(*extent).ok()?));
    let width = usize::from(lent.element.bits) * usize::from(lent.element.lanes);
    let has = elements.and_then(|elements| elements.checked_mul(width)).unwrap_or(0) / 8;
    if !is_packed || has < bytes || read_only || !place.has(lent.device) {
        return Err(PyValueError::new_err(format!(
            "workspace: expected {bytes} writable bytes without gaps in {}, got {has} on DLPack device {}:{}",
            place.text(),
            lent.device.kind,
            lent.device.index
        )));
    }
    let offset =
        usize::try_from(lent.byte_offset).map_err(|_| PyValueError::new_err("workspace: its offset does not fit"))?;
    let address = lent.data.wrapping_byte_add(offset);
    Ok(Borrowed { address, bytes: has, device: lent.device.gpu(), _capsule: capsule })
}

/// The name of a tensor for messages.
pub(crate) fn label(tensor: &Tensor) -> String {
    if tensor.name().is_empty() { format!("tensor {}", tensor.uid()) } else { tensor.name().to_string() }
}

/// A list of that many numbers; `None` if there is none.
///
/// # Safety
/// The address is null, or that of so many numbers, for the lifetime that the caller gives them.
unsafe fn numbers<'a>(address: *const i64, count: usize) -> Option<&'a [i64]> {
    // SAFETY: the caller's promise.
    (!address.is_null()).then(|| unsafe { std::slice::from_raw_parts(address, count) })
}

/// The object's capsule, the tensor in it, and whether it is read-only.
fn lent(object: &Bound<'_, PyAny>, label: &str, stream: Option<usize>) -> PyResult<(Py<PyAny>, *const Lent, bool)> {
    let py = object.py();
    let export = object.getattr(intern!(py, "__dlpack__")).map_err(|_| {
        let kind = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("{label}: expected an array with __dlpack__, got {kind}"))
    })?;
    let arguments = PyDict::new(py);
    if let Some(stream) = stream {
        arguments.set_item(intern!(py, "stream"), stream)?;
    }
    arguments.set_item(intern!(py, "max_version"), (MAJOR, 0))?;
    let capsule = match export.call((), Some(&arguments)) {
        // A producer from before the protocol had versions.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item(intern!(py, "max_version"))?;
            export.call((), Some(&arguments))?
        }
        other => other?,
    };
    let tensor = |name: &CStr| -> Option<*mut c_void> {
        // SAFETY: the object is alive, and the function looks whether it is a capsule of that name.
        unsafe {
            let valid = ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1;
            valid.then(|| ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))
        }
    };
    if let Some(versioned) = tensor(c"dltensor_versioned") {
        let versioned = versioned.cast_const().cast::<Versioned>();
        // SAFETY: a valid capsule of that name has one; its first field is there in every version.
        let major = unsafe { (*versioned).major };
        if major != MAJOR {
            return Err(PyValueError::new_err(format!("{label}: expected DLPack {MAJOR}, got {major}")));
        }
        // SAFETY: of this major version the rest has the layout, too.
        let (tensor, flags) = unsafe { (&raw const (*versioned).tensor, (*versioned).flags) };
        return Ok((capsule.unbind(), tensor, flags & READ_ONLY != 0));
    }
    match tensor(c"dltensor") {
        // A managed tensor without a version begins with the tensor.
        Some(managed) => Ok((capsule.unbind(), managed.cast_const().cast(), false)),
        None => Err(PyTypeError::new_err(format!("{label}: expected a DLPack capsule of __dlpack__"))),
    }
}
