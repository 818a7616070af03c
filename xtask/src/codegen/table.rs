//! Turns bindgen's declarations into a module with a table of functions that are looked up at run time.

use std::collections::BTreeMap;

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use syn::{ForeignItem, Item};

use crate::Result;

/// Names of the functions in bindgen's declarations.
pub(super) fn functions(declarations: &str) -> Result<Vec<String>> {
    let file = syn::parse_file(declarations)?;
    let blocks = file.items.iter().filter_map(|item| match item {
        Item::ForeignMod(block) => Some(&block.items),
        _ => None,
    });
    Ok(blocks.flatten().filter_map(function).map(|function| function.sig.ident.to_string()).collect())
}

fn function(item: &ForeignItem) -> Option<&syn::ForeignItemFn> {
    match item {
        ForeignItem::Fn(function) => Some(function),
        _ => None,
    }
}

/// The module's text. Functions for which `optional` holds may be missing from a library.
pub(super) fn module(declarations: &str, optional: impl Fn(&str) -> bool) -> Result<String> {
    let file = syn::parse_file(declarations)?;
    let mut kept = Vec::new();
    let mut functions = Vec::new();
    let mut enumerators: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    for item in file.items {
        match item {
            Item::ForeignMod(block) => functions.extend(block.items.iter().filter_map(function).cloned()),
            item => {
                collect_enumerators(&item, &mut enumerators);
                kept.push(item);
            }
        }
    }
    let names = enumerators.iter().map(|(name, values)| names_of(name, values));
    let fields = functions.iter().map(|function| {
        let (name, kind) = (&function.sig.ident, pointer(function));
        if optional(&name.to_string()) { quote!(pub #name: Option<#kind>) } else { quote!(pub #name: #kind) }
    });
    let lookups = functions.iter().map(|function| {
        let name = &function.sig.ident;
        let text = Literal::c_string(&std::ffi::CString::new(name.to_string()).expect("a name has no NUL"));
        if optional(&name.to_string()) {
            quote!(#name: optional(lookup, #text))
        } else {
            quote!(#name: required(lookup, #text)?)
        }
    });
    let text = quote! {
        use crate::library::{Lookup, LibraryError, optional, required};

        #(#kept)*
        #(#names)*

        /// The library's functions. They are good as long as the library is open.
        #[derive(Clone, Copy, Debug)]
        pub struct Functions {
            #(#fields,)*
        }

        impl Functions {
            /// Looks all functions up.
            ///
            /// # Safety
            /// A name that is found is the function of the library that this table is for.
            ///
            /// # Errors
            /// If a function is missing that every library has.
            pub unsafe fn load(lookup: &dyn Lookup) -> Result<Functions, LibraryError> {
                // SAFETY: the types are those of the library's headers, the rest is the caller's promise.
                unsafe { Ok(Functions { #(#lookups,)* }) }
            }
        }
    };
    Ok(prettyplease::unparse(&syn::parse2(text)?))
}

/// The type of a pointer to the function.
fn pointer(function: &syn::ForeignItemFn) -> TokenStream {
    let parameters = function.sig.inputs.iter();
    let output = &function.sig.output;
    quote!(unsafe extern "C" fn(#(#parameters),*) #output)
}

/// bindgen writes an enumerator as a constant of its own type, in an `impl` of that type.
fn collect_enumerators(item: &Item, all: &mut BTreeMap<String, Vec<(String, i64)>>) {
    let Item::Impl(block) = item else { return };
    let syn::Type::Path(owner) = &*block.self_ty else { return };
    let (None, Some(owner)) = (&block.trait_, owner.path.get_ident()) else { return };
    for item in &block.items {
        if let syn::ImplItem::Const(constant) = item
            && let syn::Type::Path(kind) = &constant.ty
            && kind.path.is_ident(owner)
            && let syn::Expr::Call(call) = &constant.expr
            && let Some(value) = call.args.first().and_then(number)
        {
            all.entry(owner.to_string()).or_default().push((constant.ident.to_string(), value));
        }
    }
}

fn number(expression: &syn::Expr) -> Option<i64> {
    match expression {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(value), .. }) => value.base10_parse().ok(),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => Some(-number(expr)?),
        _ => None,
    }
}

/// A number has the first of several names.
fn names_of(kind: &str, values: &[(String, i64)]) -> TokenStream {
    let kind = format_ident!("{kind}");
    let mut seen = std::collections::BTreeSet::new();
    let distinct: Vec<_> = values.iter().filter(|(_, value)| seen.insert(*value)).collect();
    let arms = distinct.iter().map(|(name, value)| {
        let value = Literal::i64_unsuffixed(*value);
        quote!(#value => #name)
    });
    let kind_text = kind.to_string();
    quote! {
        impl #kind {
            /// The enumerator's name, if the number has one.
            pub const fn name(self) -> Option<&'static str> {
                Some(match self.0 {
                    #(#arms,)*
                    _ => return None,
                })
            }
        }

        impl ::core::fmt::Display for #kind {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(#kind_text, " {}"), self.0),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARATIONS: &str = "
        impl status { pub const good: status = status(0); }
        impl status { pub const bad: status = status(4294967295); }
        impl signed { pub const below: signed = signed(-2); }
        impl status { pub const fine: status = status(0); }
        pub struct status(pub u32);
        unsafe extern \"C\" { #[must_use] pub fn start(flags: u32) -> status; pub fn stop(); }
    ";

    #[test]
    fn a_table_has_a_field_for_each_function() {
        assert_eq!(functions(DECLARATIONS).unwrap(), ["start", "stop"]);
        let text = module(DECLARATIONS, |name| name == "stop").unwrap();
        for part in [
            "pub start: unsafe extern \"C\" fn(flags: u32) -> status,",
            "pub stop: Option<unsafe extern \"C\" fn()>,",
            "start: required(lookup, c\"start\")?,",
            "stop: optional(lookup, c\"stop\"),",
            "0 => \"good\",",
            "4294967295 => \"bad\",",
            "-2 => \"below\",",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(!text.contains("\"fine\"") && !text.contains("unsafe extern \"C\" {"), "{text}");
    }
}
