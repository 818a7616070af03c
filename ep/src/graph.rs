//! The runtime's graph, read through its C API. What is here borrows from the runtime and is valid only during the
//! callback that got the graph.

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{NonNull, null};

use hipdnn_ep_compiler::model::Attribute;
use hipdnn_sdk_bindings::ort::{self, ElementType, OpAttrType, Status, ValueType};

use crate::error::Error;
use crate::runtime::{Runtime, text_of};

/// A graph, or a view of some nodes of one.
#[derive(Clone, Copy)]
pub(crate) struct Graph<'a> {
    runtime: &'a Runtime,
    raw: NonNull<ort::Graph>,
}

/// A node.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    runtime: &'a Runtime,
    raw: NonNull<ort::Node>,
}

/// A named value: an input or output of nodes or of the graph.
#[derive(Clone, Copy)]
pub(crate) struct ValueInfo<'a> {
    runtime: &'a Runtime,
    raw: NonNull<ort::ValueInfo>,
    graph: PhantomData<&'a ort::Graph>,
}

/// Type of a tensor, as far as it is known before the model runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorType {
    /// Type of the elements.
    pub element: ElementType,
    /// Extents, -1 where unknown; `None` if not even the rank is known.
    pub shape: Option<Vec<i64>>,
    /// Names of the extents, as many as there are; empty where there is none.
    pub symbols: Vec<String>,
}

impl Runtime {
    /// Calls a getter whose answer goes where its last argument points.
    fn get<T: Copy>(&self, initial: T, getter: impl FnOnce(*mut T) -> *mut Status) -> Result<T, Error> {
        let mut answer = initial;
        let status = getter(&mut answer);
        // SAFETY: the status was made for us by the call above.
        unsafe { self.check(status) }?;
        Ok(answer)
    }

    fn text<'a>(&self, getter: impl FnOnce(*mut *const c_char) -> *mut Status) -> Result<&'a str, Error> {
        let text = self.get(null(), getter)?;
        // SAFETY: names in a graph end in a NUL and live as long as the graph, which `'a` does not outlive.
        unsafe { text_of(text) }.ok_or_else(|| Error::failed("ONNX Runtime gave a name that is not UTF-8"))
    }

    /// Calls a getter that fills an array of pointers.
    fn list<T>(&self, count: usize, fill: impl FnOnce(*mut *const T) -> *mut Status) -> Result<Vec<*const T>, Error> {
        let mut items = vec![null(); count];
        let status = fill(items.as_mut_ptr());
        // SAFETY: the status was made for us by the call above.
        unsafe { self.check(status) }?;
        Ok(items)
    }
}

impl<'a> Graph<'a> {
    /// Takes a graph that a callback got.
    ///
    /// # Safety
    /// `raw` is null or a graph that lives as long as `'a`.
    ///
    /// # Errors
    /// If it is null.
    pub(crate) unsafe fn new(runtime: &'a Runtime, raw: *const ort::Graph) -> Result<Graph<'a>, Error> {
        let raw = NonNull::new(raw.cast_mut()).ok_or_else(|| Error::invalid("the graph is null"))?;
        Ok(Graph { runtime, raw })
    }

    /// The graph's name.
    pub(crate) fn name(&self) -> Result<&'a str, Error> {
        // SAFETY: the graph is alive and the answer's place is valid for the call.
        self.runtime.text(|out| unsafe { self.runtime.api.graph_get_name()(self.raw.as_ptr(), out) })
    }

    /// The model's file; `None` of a model that was loaded from memory.
    pub(crate) fn model_path(&self) -> Result<Option<PathBuf>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the graph is alive and the answer's place is valid for the call.
        let path = self.runtime.get(null(), |out| unsafe { api.graph_get_model_path()(self.raw.as_ptr(), out) })?;
        if path.is_null() {
            return Ok(None);
        }
        // SAFETY: the path ends in NUL and lives as long as the graph.
        let bytes = unsafe { CStr::from_ptr(path.cast::<c_char>()) }.to_bytes();
        Ok((!bytes.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(bytes))))
    }

    /// The nodes in topological order.
    pub(crate) fn nodes(&self) -> Result<Vec<Node<'a>>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the graph is alive and the answer's place is valid for the call.
        let count = self.runtime.get(0, |out| unsafe { api.graph_get_num_nodes()(self.raw.as_ptr(), out) })?;
        // SAFETY: the object is alive, and there is room for `count` pointers.
        let nodes = self.runtime.list(count, |out| unsafe { api.graph_get_nodes()(self.raw.as_ptr(), out, count) })?;
        nodes.into_iter().map(|node| self.node(node)).collect()
    }

    /// The node whose body this graph is, if it is one.
    pub(crate) fn parent(&self) -> Result<Option<Node<'a>>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the graph is alive and the answer's place is valid for the call.
        let node = self.runtime.get(null(), |out| unsafe { api.graph_get_parent_node()(self.raw.as_ptr(), out) })?;
        Ok(NonNull::new(node.cast_mut()).map(|raw| Node { runtime: self.runtime, raw }))
    }

    /// Path of the graph in the model: the names of the graphs and nodes that it is inside of, from the outermost.
    pub(crate) fn path(&self) -> Result<String, Error> {
        let mut path = vec![self.name()?.to_string()];
        let mut parent = self.parent()?;
        // A model nests as deep as its author did; this bound only ends a loop that should not be.
        for _ in 0..64 {
            let Some(node) = parent else { break };
            path.push(format!("{}({})", node.label()?, node.op_type()?));
            let Some(graph) = node.graph()? else { break };
            path.push(graph.name()?.to_string());
            parent = graph.parent()?;
        }
        path.reverse();
        Ok(path.join("/"))
    }

    /// True if the graph is in a body of a node that the runtime replaces by a function later, as `SequenceMap`: it forgets the
    /// domains of nodes in there.
    pub(crate) fn is_inlined(&self) -> Result<bool, Error> {
        let mut parent = self.parent()?;
        // As in `path`.
        for _ in 0..64 {
            let Some(node) = parent else { break };
            if !matches!(node.op_type()?, "If" | "Loop" | "Scan") {
                return Ok(true);
            }
            let Some(graph) = node.graph()? else { break };
            parent = graph.parent()?;
        }
        Ok(false)
    }

    /// True if the graph is the body of a node, as far as can be told: before 1.24.4 the runtime does not name the parent.
    /// Graphs that read values of another graph are bodies; so are those that look like the body of a loop.
    pub(crate) fn is_body(&self) -> Result<bool, Error> {
        if self.parent()?.is_some() {
            return Ok(true);
        }
        for node in self.nodes()? {
            for input in node.inputs()?.into_iter().flatten() {
                if input.is_from_outer_scope()? {
                    return Ok(true);
                }
            }
        }
        let elements = |values: Vec<Option<ValueInfo<'a>>>, count: usize| {
            let tensors = values.into_iter().take(count).map(|value| value.map_or(Ok(None), |value| value.tensor()));
            tensors.map(|tensor| Ok(tensor?.map(|tensor| tensor.element))).collect::<Result<Vec<_>, Error>>()
        };
        Ok(elements(self.inputs()?, 2)? == [Some(ElementType::INT64), Some(ElementType::BOOL)]
            && elements(self.outputs()?, 1)? == [Some(ElementType::BOOL)])
    }

    pub(crate) fn inputs(&self) -> Result<Vec<Option<ValueInfo<'a>>>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the graph is alive and the answer's place is valid for the call.
        let count = self.runtime.get(0, |out| unsafe { api.graph_get_num_inputs()(self.raw.as_ptr(), out) })?;
        // SAFETY: the object is alive, and there is room for `count` pointers.
        let list = self.runtime.list(count, |out| unsafe { api.graph_get_inputs()(self.raw.as_ptr(), out, count) })?;
        Ok(list.into_iter().map(|raw| ValueInfo::new(self.runtime, raw)).collect())
    }

    pub(crate) fn outputs(&self) -> Result<Vec<Option<ValueInfo<'a>>>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the graph is alive and the answer's place is valid for the call.
        let count = self.runtime.get(0, |out| unsafe { api.graph_get_num_outputs()(self.raw.as_ptr(), out) })?;
        // SAFETY: the object is alive, and there is room for `count` pointers.
        let list = self.runtime.list(count, |out| unsafe { api.graph_get_outputs()(self.raw.as_ptr(), out, count) })?;
        Ok(list.into_iter().map(|raw| ValueInfo::new(self.runtime, raw)).collect())
    }

    fn node(&self, raw: *const ort::Node) -> Result<Node<'a>, Error> {
        let raw = NonNull::new(raw.cast_mut()).ok_or_else(|| Error::failed("ONNX Runtime gave a null node"))?;
        Ok(Node { runtime: self.runtime, raw })
    }
}

impl<'a> Node<'a> {
    /// Takes a node that a callback got.
    ///
    /// # Safety
    /// `raw` is null or a node that lives as long as `'a`.
    ///
    /// # Errors
    /// If it is null.
    pub(crate) unsafe fn new(runtime: &'a Runtime, raw: *const ort::Node) -> Result<Node<'a>, Error> {
        let raw = NonNull::new(raw.cast_mut()).ok_or_else(|| Error::invalid("the node is null"))?;
        Ok(Node { runtime, raw })
    }

    /// The runtime's own object.
    pub(crate) fn as_ptr(&self) -> *const ort::Node {
        self.raw.as_ptr()
    }

    /// The node's name, which may be empty.
    pub(crate) fn name(&self) -> Result<&'a str, Error> {
        // SAFETY: the node is alive and the answer's place is valid for the call.
        self.runtime.text(|out| unsafe { self.runtime.api.node_get_name()(self.raw.as_ptr(), out) })
    }

    /// The node's name; for one without, that of its first output, which is unique.
    pub(crate) fn label(&self) -> Result<&'a str, Error> {
        match self.name()? {
            "" => match self.outputs()?.into_iter().flatten().next() {
                Some(output) => output.name(),
                None => Ok(""),
            },
            name => Ok(name),
        }
    }

    /// The operator.
    pub(crate) fn op_type(&self) -> Result<&'a str, Error> {
        // SAFETY: the object is alive and the answer's place is valid for the call.
        self.runtime.text(|out| unsafe { self.runtime.api.node_get_operator_type()(self.raw.as_ptr(), out) })
    }

    /// The operator's domain; empty for ONNX's own.
    pub(crate) fn domain(&self) -> Result<&'a str, Error> {
        // SAFETY: the object is alive and the answer's place is valid for the call.
        let domain = self.runtime.text(|out| unsafe { self.runtime.api.node_get_domain()(self.raw.as_ptr(), out) })?;
        Ok(if domain == "ai.onnx" { "" } else { domain })
    }

    /// The operator set version that the operator's definition dates from.
    pub(crate) fn since_version(&self) -> Result<i32, Error> {
        // SAFETY: the object is alive and the answer's place is valid for the call.
        self.runtime.get(0, |out| unsafe { self.runtime.api.node_get_since_version()(self.raw.as_ptr(), out) })
    }

    /// The provider that has the node already; empty if none has.
    pub(crate) fn ep_name(&self) -> Result<&'a str, Error> {
        // SAFETY: the object is alive and the answer's place is valid for the call.
        let name =
            self.runtime.get(null(), |out| unsafe { self.runtime.api.node_get_ep_name()(self.raw.as_ptr(), out) })?;
        // SAFETY: the name lives as long as the graph.
        Ok(unsafe { text_of(name) }.unwrap_or(""))
    }

    /// The graph that the node is in.
    pub(crate) fn graph(&self) -> Result<Option<Graph<'a>>, Error> {
        // SAFETY: the object is alive and the answer's place is valid for the call.
        let graph =
            self.runtime.get(null(), |out| unsafe { self.runtime.api.node_get_graph()(self.raw.as_ptr(), out) })?;
        Ok(NonNull::new(graph.cast_mut()).map(|raw| Graph { runtime: self.runtime, raw }))
    }

    /// The inputs; `None` for one that is left out.
    pub(crate) fn inputs(&self) -> Result<Vec<Option<ValueInfo<'a>>>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the node is alive and the answer's place is valid for the call.
        let count = self.runtime.get(0, |out| unsafe { api.node_get_num_inputs()(self.raw.as_ptr(), out) })?;
        // SAFETY: the object is alive, and there is room for `count` pointers.
        let list = self.runtime.list(count, |out| unsafe { api.node_get_inputs()(self.raw.as_ptr(), out, count) })?;
        Ok(list.into_iter().map(|raw| ValueInfo::new(self.runtime, raw)).collect())
    }

    /// The outputs; `None` for one that is left out.
    pub(crate) fn outputs(&self) -> Result<Vec<Option<ValueInfo<'a>>>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the node is alive and the answer's place is valid for the call.
        let count = self.runtime.get(0, |out| unsafe { api.node_get_num_outputs()(self.raw.as_ptr(), out) })?;
        // SAFETY: the object is alive, and there is room for `count` pointers.
        let list = self.runtime.list(count, |out| unsafe { api.node_get_outputs()(self.raw.as_ptr(), out, count) })?;
        Ok(list.into_iter().map(|raw| ValueInfo::new(self.runtime, raw)).collect())
    }

    /// The values that the node's bodies read from around it.
    pub(crate) fn implicit_inputs(&self) -> Result<Vec<ValueInfo<'a>>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the node is alive and the answer's place is valid for the call.
        let count = self.runtime.get(0, |out| unsafe { api.node_get_num_implicit_inputs()(self.raw.as_ptr(), out) })?;
        // SAFETY: the node is alive and the array has `count` elements.
        let list =
            self.runtime.list(count, |out| unsafe { api.node_get_implicit_inputs()(self.raw.as_ptr(), out, count) })?;
        Ok(list.into_iter().filter_map(|raw| ValueInfo::new(self.runtime, raw)).collect())
    }

    /// Every attribute that is set, with its name.
    pub(crate) fn attributes(&self) -> Result<Vec<(String, Attribute)>, Error> {
        let api = &self.runtime.api;
        // SAFETY: the node is alive and the answer's place is valid for the call.
        let count = self.runtime.get(0, |out| unsafe { api.node_get_num_attributes()(self.raw.as_ptr(), out) })?;
        // SAFETY: the node is alive and the array has `count` elements.
        let list =
            self.runtime.list(count, |out| unsafe { api.node_get_attributes()(self.raw.as_ptr(), out, count) })?;
        let mut attributes = Vec::with_capacity(count);
        for attribute in list {
            let Some(attribute) = NonNull::new(attribute.cast_mut()) else { continue };
            // SAFETY: the attribute is of the node, and the answer's place is valid for the call.
            let name = self.runtime.text(|out| unsafe { api.op_attr_get_name()(attribute.as_ptr(), out) })?;
            // SAFETY: the attribute is of the node, and the answer's place is valid for the call.
            let kind = self
                .runtime
                .get(OpAttrType::UNDEFINED, |out| unsafe { api.op_attr_get_type()(attribute.as_ptr(), out) })?;
            attributes.push((name.to_string(), self.attribute(attribute, kind)?));
        }
        Ok(attributes)
    }

    fn attribute(&self, attribute: NonNull<ort::OpAttr>, kind: OpAttrType) -> Result<Attribute, Error> {
        // SAFETY: the runtime stores integers in 64 bits.
        let ints = || unsafe { self.read::<i64>(attribute, kind) };
        // SAFETY: the runtime stores numbers in 32 bits.
        let floats = || unsafe { self.read::<f32>(attribute, kind) };
        Ok(match kind {
            OpAttrType::INT => ints()?.first().map_or(Attribute::Other, |value| Attribute::Int(*value)),
            OpAttrType::INTS => Attribute::Ints(ints()?),
            OpAttrType::FLOAT => floats()?.first().map_or(Attribute::Other, |value| Attribute::Float(*value)),
            OpAttrType::FLOATS => Attribute::Floats(floats()?),
            OpAttrType::STRING => {
                // SAFETY: the runtime stores texts as bytes.
                let mut bytes = unsafe { self.read::<u8>(attribute, kind) }?;
                while bytes.last() == Some(&0) {
                    bytes.pop();
                }
                String::from_utf8(bytes).map_or(Attribute::Other, Attribute::String)
            }
            OpAttrType::GRAPH => Attribute::Graph,
            _ => Attribute::Other,
        })
    }

    /// The bytes of a text attribute, which need not be UTF-8; without zeros at the end.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn text_bytes(&self, name: &str) -> Result<Vec<u8>, Error> {
        let api = &self.runtime.api;
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the node is alive, the name ends in NUL, and the answer's place is valid for the call.
        let attribute = self
            .runtime
            .get(null(), |out| unsafe { api.node_get_attribute_by_name()(self.raw.as_ptr(), text.as_ptr(), out) })?;
        let attribute = NonNull::new(attribute.cast_mut()).ok_or_else(|| {
            Error::invalid(format!("{}: it has no attribute {name:?}", self.label().unwrap_or_default()))
        })?;
        // SAFETY: a text has bytes.
        let mut bytes = unsafe { self.read::<u8>(attribute, OpAttrType::STRING) }?;
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(bytes)
    }

    /// # Safety
    /// `T` is what the runtime stores for attributes of `kind`, and any bytes are a `T`.
    unsafe fn read<T: Copy + Default>(
        &self,
        attribute: NonNull<ort::OpAttr>,
        kind: OpAttrType,
    ) -> Result<Vec<T>, Error> {
        let read = self.runtime.api.read_op_attr();
        let mut bytes = 0usize;
        // SAFETY: a size query: the attribute is of the node, and `bytes` is valid for the call.
        let status = unsafe { read(attribute.as_ptr(), kind, std::ptr::null_mut(), 0, &mut bytes) };
        // SAFETY: the status is ours. The query itself "fails" for want of room, which is no error.
        let _ = unsafe { self.runtime.check(status) };
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let mut values = vec![T::default(); bytes.div_ceil(size_of::<T>())];
        let room = values.len() * size_of::<T>();
        let data = values.as_mut_ptr().cast::<c_void>();
        // SAFETY: `data` has `room` bytes, at least the number asked for.
        let status = unsafe { read(attribute.as_ptr(), kind, data, room, &mut bytes) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        values.truncate(bytes / size_of::<T>());
        Ok(values)
    }
}

impl<'a> ValueInfo<'a> {
    fn new(runtime: &'a Runtime, raw: *const ort::ValueInfo) -> Option<ValueInfo<'a>> {
        Some(ValueInfo { runtime, raw: NonNull::new(raw.cast_mut())?, graph: PhantomData })
    }

    /// The value's name.
    pub(crate) fn name(&self) -> Result<&'a str, Error> {
        // SAFETY: the value is alive and the answer's place is valid for the call.
        self.runtime.text(|out| unsafe { self.runtime.api.get_value_info_name()(self.raw.as_ptr(), out) })
    }

    /// Type of the tensor, as far as it is known; `None` if the value is no tensor, or nothing is known.
    pub(crate) fn tensor(&self) -> Result<Option<TensorType>, Error> {
        let (runtime, api) = (self.runtime, &self.runtime.api);
        // SAFETY: the value is alive and the answer's place is valid for the call.
        let info = runtime.get(null(), |out| unsafe { api.get_value_info_type_info()(self.raw.as_ptr(), out) })?;
        if info.is_null() {
            return Ok(None);
        }
        // SAFETY: the type is the value's, alive with it.
        let kind = runtime.get(ValueType::UNKNOWN, |out| unsafe { api.get_onnx_type_from_type_info()(info, out) })?;
        if kind != ValueType::TENSOR {
            return Ok(None);
        }
        // SAFETY: the object is alive and the answer's place is valid for the call.
        let tensor = runtime.get(null(), |out| unsafe { api.cast_type_info_to_tensor_info()(info, out) })?;
        if tensor.is_null() {
            return Ok(None);
        }
        // SAFETY: the tensor's description belongs to the type.
        unsafe { runtime.describe(tensor) }.map(Some)
    }

    /// True if this is an initializer that nothing can replace at run time.
    pub(crate) fn is_constant(&self) -> Result<bool, Error> {
        let api = &self.runtime.api;
        // SAFETY: the value is alive and the answer's place is valid for the call.
        self.runtime.get(false, |out| unsafe { api.value_info_is_constant_initializer()(self.raw.as_ptr(), out) })
    }

    /// True if the value is of a graph that this one is inside of.
    pub(crate) fn is_from_outer_scope(&self) -> Result<bool, Error> {
        let api = &self.runtime.api;
        // SAFETY: the object is alive and the answer's place is valid for the call.
        self.runtime.get(false, |out| unsafe { api.value_info_is_from_outer_scope()(self.raw.as_ptr(), out) })
    }

    /// True if the graph hands this value out.
    pub(crate) fn is_graph_output(&self) -> Result<bool, Error> {
        let api = &self.runtime.api;
        // SAFETY: the object is alive and the answer's place is valid for the call.
        self.runtime.get(false, |out| unsafe { api.value_info_is_graph_output()(self.raw.as_ptr(), out) })
    }

    /// The type, extents and bytes of an initializer in the host's memory; `None` if the value is not one.
    pub(crate) fn initializer(&self) -> Result<Option<(TensorType, &'a [u8])>, Error> {
        let (runtime, api) = (self.runtime, &self.runtime.api);
        let value = runtime.get(null(), |out| {
            // SAFETY: the value is alive and the answer's place is valid for the call.
            unsafe { api.value_info_get_initializer_value()(self.raw.as_ptr(), out) }
        })?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: the initializer lives as long as the graph.
        let kind = unsafe { runtime.shape_of(value) }?;
        // SAFETY: the initializer lives as long as the graph, and does not change.
        Ok(Some((kind, unsafe { runtime.bytes_of(value) }?)))
    }
}

impl Runtime {
    /// # Safety
    /// `info` is alive.
    unsafe fn describe(&self, info: *const ort::TensorTypeAndShapeInfo) -> Result<TensorType, Error> {
        let api = &self.api;
        // SAFETY: the description is alive and the answer's place is valid for the call.
        let element = self.get(ElementType::UNDEFINED, |out| unsafe { api.get_tensor_element_type()(info, out) })?;
        // SAFETY: the object is alive and the answer's place is valid for the call.
        let rank = self.get(0usize, |out| unsafe { api.get_dimensions_count()(info, out) })?;
        // Before 1.24 a tensor of unknown rank looks like a scalar.
        let known = match api.tensor_type_and_shape_has_shape() {
            // SAFETY: the object is alive and the answer's place is valid for the call.
            Some(has_shape) => unsafe { has_shape(info) },
            None => rank != 0,
        };
        if !known {
            return Ok(TensorType { element, shape: None, symbols: Vec::new() });
        }
        let mut shape = vec![-1i64; rank];
        // SAFETY: `shape` has `rank` elements.
        let status = unsafe { api.get_dimensions()(info, shape.as_mut_ptr(), rank) };
        // SAFETY: the status is ours.
        unsafe { self.check(status) }?;
        let mut names = vec![null(); rank];
        // SAFETY: `names` has `rank` elements.
        let status = unsafe { api.get_symbolic_dimensions()(info, names.as_mut_ptr(), rank) };
        // SAFETY: the status is ours.
        unsafe { self.check(status) }?;
        // SAFETY: each name is null or a text that lives as long as the description.
        let symbols = names.into_iter().map(|name| unsafe { text_of(name) }.unwrap_or("").to_string()).collect();
        Ok(TensorType { element, shape: Some(shape), symbols })
    }

    /// The elements of a tensor in the host's memory.
    ///
    /// # Safety
    /// `value` is a tensor that lives as long as `'a`, and nobody writes to it.
    ///
    /// # Errors
    /// If the runtime says that it is none.
    pub(crate) unsafe fn bytes_of<'a>(&self, value: *const ort::Value) -> Result<&'a [u8], Error> {
        // SAFETY: the tensor is alive and the answer's place is valid for the call.
        let size = self.get(0, |out| unsafe { self.api.get_tensor_size_in_bytes()(value, out) })?;
        // SAFETY: the tensor is alive and the answer's place is valid for the call.
        let data = self.get(null(), |out| unsafe { self.api.get_tensor_data()(value, out) })?;
        if data.is_null() || size == 0 {
            return Ok(&[]);
        }
        // SAFETY: the tensor has `size` bytes at `data`, which live and do not change as long as `'a`.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) })
    }

    /// The type and extents of a tensor.
    ///
    /// # Safety
    /// `value` is a living tensor.
    ///
    /// # Errors
    /// If the runtime says that it is none.
    pub(crate) unsafe fn shape_of(&self, value: *const ort::Value) -> Result<TensorType, Error> {
        let api = &self.api;
        // SAFETY: the tensor is alive and the answer's place is valid for the call.
        let info = self.get(std::ptr::null_mut(), |out| unsafe { api.get_tensor_type_and_shape()(value, out) })?;
        // SAFETY: the description was made for us and is alive until it is released below.
        let described = unsafe { self.describe(info) }.map(|tensor| {
            // A tensor that is there has a rank, also where a description of none could be one of rank 0.
            TensorType { shape: Some(tensor.shape.unwrap_or_default()), ..tensor }
        });
        // SAFETY: it is ours and not used again.
        unsafe { api.release_tensor_type_and_shape_info()(info) };
        described
    }
}
