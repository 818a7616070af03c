//! Placement of an operation's fields in the JSON form of its node. hipDNN places them differently for each operation.

use serde_json::{Map, Value};

use crate::field::{Field, expected};

type Object = Map<String, Value>;

/// Index of the group of fields for the tensors that are read.
pub(crate) const INPUTS: usize = 0;
/// Index of the group of fields for the tensors that are written.
pub(crate) const OUTPUTS: usize = 1;
/// Index of the group of all other fields.
pub(crate) const PARAMETERS: usize = 2;

/// Earlier names of the groups, from when every operation had all of them; still read.
const EARLIER: [&str; 3] = ["inputs", "outputs", "parameters"];

/// Layout of an operation's fields in the JSON form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The objects that hold the groups; `None` where a group's fields stand on the node itself.
    groups: [Option<&'static str>; 3],
    /// True if absent fields are left out instead of written as `null`.
    is_sparse: bool,
    /// True if enumerations are written as numbers.
    is_numbered: bool,
}

impl Form {
    /// Everything in groups.
    pub(crate) const GROUPED: Form =
        Form { groups: [Some("inputs"), Some("outputs"), Some("parameters")], is_sparse: false, is_numbered: false };
    /// Everything in groups, with `attributes` for the parameters.
    pub(crate) const ATTRIBUTES: Form =
        Form { groups: [Some("inputs"), Some("outputs"), Some("attributes")], ..Form::GROUPED };
    /// Tensors in groups, parameters on the node, nothing that is not given.
    pub(crate) const SPARSE: Form =
        Form { groups: [Some("inputs"), Some("outputs"), None], is_sparse: true, is_numbered: false };
    /// Tensors in groups, parameters on the node, enumerations as numbers.
    pub(crate) const NUMBERED: Form =
        Form { groups: [Some("inputs"), Some("outputs"), None], is_sparse: false, is_numbered: true };
    /// Everything on the node.
    pub(crate) const FLAT: Form = Form { groups: [None; 3], is_sparse: false, is_numbered: false };
    /// Everything on the node, nothing that is not given, enumerations as numbers.
    pub(crate) const FLAT_NUMBERED: Form = Form { groups: [None; 3], is_sparse: true, is_numbered: true };

    /// The groups of a node, each where this form has it, or else where the earlier form had it.
    ///
    /// # Errors
    /// If what should hold a group is no object.
    pub(crate) fn groups(self, node: &Object) -> Result<[Group<'_>; 3], String> {
        let group = |number: usize| -> Result<Group<'_>, String> {
            let (place, earlier) = (self.groups[number], EARLIER[number]);
            let has = |name: &str| node.contains_key(name);
            let place = if has(earlier) && !place.is_some_and(has) { Some(earlier) } else { place };
            let Some(name) = place else { return Ok(Group { name: None, fields: Some(node) }) };
            let fields = node
                .get(name)
                .map(|value| value.as_object().ok_or_else(|| expected(&format!("an object {name}"), value)));
            Ok(Group { name: Some(name), fields: fields.transpose()? })
        };
        Ok([group(INPUTS)?, group(OUTPUTS)?, group(PARAMETERS)?])
    }
}

/// A group of a node's fields that is read.
pub(crate) struct Group<'a> {
    /// The object's name; `None` for the node itself.
    name: Option<&'static str>,
    /// `None` if the node lacks the object.
    fields: Option<&'a Object>,
}

impl Group<'_> {
    fn value<T: Field>(&self, key: &str) -> Result<Option<T>, String> {
        let value = self.fields.and_then(|fields| fields.get(key));
        value.map(T::from_json).transpose().map_err(|reason| format!("{}: {reason}", self.path(key)))
    }

    fn path(&self, key: &str) -> String {
        self.name.map_or_else(|| key.to_string(), |name| format!("{name}.{key}"))
    }

    /// The field, or its type's value for a missing field.
    ///
    /// # Errors
    /// If it is missing and its type has no such value, or it can't be decoded.
    pub(crate) fn field<T: Field>(&self, key: &str) -> Result<T, String> {
        self.value(key)?.or_else(T::absent).ok_or_else(|| format!("{} is missing", self.path(key)))
    }

    /// The field, or its type's default if it is missing.
    ///
    /// # Errors
    /// If it can't be decoded.
    pub(crate) fn field_or_default<T: Field + Default>(&self, key: &str) -> Result<T, String> {
        Ok(self.value(key)?.unwrap_or_default())
    }
}

/// The groups of a node's fields while they are written.
pub(crate) struct Writer {
    form: Form,
    groups: [Object; 3],
}

impl Writer {
    /// An empty writer for this form.
    pub(crate) fn new(form: Form) -> Writer {
        Writer { form, groups: Default::default() }
    }

    /// Adds a field to the group of that number.
    pub(crate) fn put(&mut self, group: usize, key: &str, field: &impl Field) {
        let value = if self.form.is_numbered { field.to_json_by_number() } else { field.to_json() };
        if !(self.form.is_sparse && value.is_null()) {
            self.groups[group].insert(key.into(), value);
        }
    }

    /// [`Writer::put`], unless the field has its type's default.
    pub(crate) fn put_unless_default<T: Field + Default + PartialEq>(&mut self, group: usize, key: &str, field: &T) {
        if *field != T::default() {
            self.put(group, key, field);
        }
    }

    /// Adds the groups to the node. An empty group of parameters is left out.
    pub(crate) fn finish(self, node: &mut Object) {
        for (number, (place, mut group)) in self.form.groups.into_iter().zip(self.groups).enumerate() {
            match place {
                Some(_) if number == PARAMETERS && group.is_empty() => {}
                Some(name) => {
                    node.insert(name.into(), Value::Object(group));
                }
                None => node.append(&mut group),
            }
        }
    }
}
