//! Circles of files in a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::Visit;

use super::lines::files;
use crate::Result;

/// A module, by its names from the crate's root.
type Module = Vec<String>;

/// The circles, each as the names of its modules, which are in files of their own.
pub(super) fn circles(folder: &Path) -> Result<Vec<Vec<String>>> {
    let mut modules = BTreeMap::new();
    for file in files(folder)? {
        let relative = file.strip_prefix(folder)?.with_extension("");
        let mut module: Module = relative.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        if matches!(module.last().map(String::as_str), Some("lib" | "main" | "mod")) {
            module.pop();
        }
        modules.insert(module, syn::parse_file(&fs::read_to_string(&file)?)?);
    }
    let names: BTreeSet<Module> = modules.keys().cloned().collect();
    let uses = modules.iter().map(|(module, file)| (module.clone(), used(module, file, &names))).collect();
    Ok(components(&uses)
        .into_iter()
        .filter(|circle| circle.len() > 1)
        .map(|circle| circle.iter().map(|m| m.join("::")).collect())
        .collect())
}

/// The modules that a module uses, but its own parts and those that it is a part of.
fn used(module: &Module, file: &syn::File, names: &BTreeSet<Module>) -> BTreeSet<Module> {
    let mut paths = Paths { module, names: BTreeMap::new(), found: Vec::new() };
    paths.visit_file(file);
    let mut used = BTreeSet::new();
    for path in paths.found {
        let longest = (0..=path.len()).rev().find(|len| names.contains(&path[..*len]));
        if let Some(len) = longest {
            let other = &path[..len];
            if !other.starts_with(module) && !module.starts_with(other) {
                used.insert(other.to_vec());
            }
        }
    }
    used
}

/// Paths that begin at the crate's root, the module or the one above it.
struct Paths<'a> {
    module: &'a Module,
    /// Modules by the names that `use` gives them.
    names: BTreeMap<String, Module>,
    found: Vec<Module>,
}

impl Paths<'_> {
    fn add(&mut self, path: &[String]) -> Option<&Module> {
        let (mut base, mut rest) = match path.first().map(String::as_str)? {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (self.module.clone(), &path[1..]),
            "super" => (self.module.clone(), path),
            name => (self.names.get(name)?.clone(), &path[1..]),
        };
        while rest.first().is_some_and(|name| name == "super") {
            base.pop();
            rest = &rest[1..];
        }
        base.extend(rest.iter().filter(|name| *name != "self").cloned());
        self.found.push(base);
        self.found.last()
    }

    fn tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Name(syn::UseName { ident }) | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                let name = match tree {
                    syn::UseTree::Rename(rename) => rename.rename.to_string(),
                    _ if ident == "self" => before.last().cloned().unwrap_or_default(),
                    _ => ident.to_string(),
                };
                before.push(ident.to_string());
                if let Some(path) = self.add(before).cloned() {
                    self.names.insert(name, path);
                }
                before.pop();
            }
            syn::UseTree::Glob(_) => drop(self.add(before)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }
}

/// True if an item is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words = list.tokens.to_string();
        list.path.is_ident("cfg")
            && (words == "test" || words.starts_with("any (test ,") || words.starts_with("any(test,"))
    })
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        // Files of tests use what they like, and so do the tests at the foot of a file.
        if !is_test(&item.attrs) && item.ident != "tests" {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&names);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        // Whatever a macro makes of them: names with `::` between.
        for path in
            item.tokens.to_string().replace(" :: ", "::").split(|c: char| !c.is_alphanumeric() && !"_:".contains(c))
        {
            self.add(&path.split("::").map(str::to_owned).collect::<Vec<_>>());
        }
        syn::visit::visit_macro(self, item);
    }
}

/// The strongly connected components (Tarjan, 1972).
fn components(uses: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    #[derive(Default)]
    struct State<'a> {
        number: BTreeMap<&'a Module, usize>,
        lowest: BTreeMap<&'a Module, usize>,
        stack: Vec<&'a Module>,
        found: Vec<Vec<Module>>,
    }
    fn visit<'a>(state: &mut State<'a>, uses: &'a BTreeMap<Module, BTreeSet<Module>>, module: &'a Module) {
        let number = state.number.len();
        state.number.insert(module, number);
        state.lowest.insert(module, number);
        state.stack.push(module);
        for other in uses.get(module).into_iter().flatten() {
            if !state.number.contains_key(other) {
                visit(state, uses, other);
                let lowest = state.lowest[module].min(state.lowest[other]);
                state.lowest.insert(module, lowest);
            } else if state.stack.contains(&other) {
                let lowest = state.lowest[module].min(state.number[other]);
                state.lowest.insert(module, lowest);
            }
        }
        if state.lowest[module] == number {
            let first = state.stack.iter().position(|other| *other == module).expect("it was pushed above");
            state.found.push(state.stack.split_off(first).into_iter().cloned().collect());
        }
    }
    let mut state = State::default();
    for module in uses.keys() {
        if !state.number.contains_key(module) {
            visit(&mut state, uses, module);
        }
    }
    state.found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str) -> Module {
        name.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn uses_are_found_whatever_they_begin_with() {
        let names = ["", "a", "a::b", "a::c", "d", "e"].map(module).into_iter().collect();
        for (text, want) in [
            ("use super::c::{X, Y}; use std::fmt; mod tests { use crate::e::Z; }", "a::c"),
            ("#[cfg(test)] use crate::e; fn f() { super::super::d::g(); self::h() }", "d"),
            ("use crate::{a::{self, c}}; fn f() { a::c::g() }", "a::c"),
            ("use super::super as top; m! { X: top::d::f, }", "d"),
        ] {
            let used = used(&module("a::b"), &syn::parse_file(text).unwrap(), &names);
            assert_eq!(used, [module(want)].into(), "{text}");
        }
    }

    #[test]
    fn circles_are_found() {
        let uses = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "e")];
        let uses = uses.map(|(from, to)| (module(from), [module(to)].into())).into();
        let mut sizes: Vec<usize> = components(&uses).iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1, 3]);
    }
}
