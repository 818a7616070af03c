//! Arithmetic in C: numbers are expressions over slots, from which the statements of an operation are written.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Sub};

use hipdnn_engine_core::ops::pointwise::{self, Number, Parameters, Real};
use hipdnn_schemas::PointwiseMode;
use smallvec::SmallVec;

use super::program::ComputeType;

/// Statements that compute `t<slot>` as the mode of operand slots, and the scalars that they call `a.p<index>` appended
/// to those before them; `None` if the mode is no operation.
pub(super) fn statements(
    compute_type: ComputeType,
    mode: PointwiseMode,
    parameters: &Parameters,
    operands: &[usize],
    slot: usize,
    scalars: &mut Vec<f32>,
) -> Option<String> {
    let Applied { nodes, uses, result } = applied(compute_type, mode, parameters, operands)?;
    let mut writer = Writer { nodes: &nodes, uses: &uses, slot, places: Vec::new(), first: scalars.len(), scalars };
    // What is used more than once has a name; operands come before what they are operands of.
    let shared = (0..nodes.len()).filter(|node| uses[*node] > 1);
    let mut text: String =
        shared.map(|node| format!("    const auto t{slot}_{node} = {};\n", writer.node(node))).collect();
    let result = match result {
        Term::Node(node) => writer.node(node),
        leaf => writer.operand(leaf),
    };
    text += &format!("    const real t{slot} = {result};\n");
    Some(text)
}

/// Number of scalars that [`statements`] of the mode call; 0 if it is no operation.
pub(super) fn scalar_count(compute_type: ComputeType, mode: PointwiseMode, parameters: &Parameters) -> usize {
    let Some(Applied { nodes, uses, result }) = applied(compute_type, mode, parameters, &[0, 1, 2]) else { return 0 };
    let used = nodes.iter().zip(&uses).filter(|(_, uses)| **uses > 0).flat_map(|(node, _)| &node.operands);
    let place = |term: &Term| if let Term::Scalar(place, _) = term { Some(*place) } else { None };
    let mut places: SmallVec<[usize; 4]> = used.chain([&result]).filter_map(place).collect();
    places.sort_unstable();
    places.dedup();
    places.len()
}

/// The mode as an expression over operand slots.
struct Applied {
    nodes: Vec<Node>,
    /// Use count of each node.
    uses: Vec<usize>,
    result: Term,
}

fn applied(
    compute_type: ComputeType,
    mode: PointwiseMode,
    parameters: &Parameters,
    operands: &[usize],
) -> Option<Applied> {
    let arena = Arena { compute_type, nodes: RefCell::default() };
    let operands: SmallVec<[_; 3]> =
        operands.iter().map(|of| Expression { term: Term::Slot(*of), arena: Some(&arena) }).collect();
    let result = pointwise::apply(mode, parameters, &operands[..])?.term;
    let nodes = arena.nodes.take();
    let mut uses = vec![0; nodes.len()];
    count(&nodes, result, &mut uses);
    Some(Applied { nodes, uses, result })
}

/// Number or condition in C.
#[derive(Clone, Copy)]
struct Expression<'a> {
    term: Term,
    /// Nodes that it is among; none for what depends on no slot.
    arena: Option<&'a Arena>,
}

#[derive(Clone, Copy)]
enum Term {
    Constant(f64),
    /// Scalar of the node by its place.
    Scalar(usize, f32),
    Slot(usize),
    Node(usize),
}

/// Text with `$0`, `$1`, `$2` for operands.
struct Node {
    text: &'static str,
    operands: SmallVec<[Term; 3]>,
}

struct Arena {
    compute_type: ComputeType,
    nodes: RefCell<Vec<Node>>,
}

/// Counts how often the nodes are used that a term needs.
fn count(nodes: &[Node], term: Term, uses: &mut [usize]) {
    let Term::Node(node) = term else { return };
    uses[node] += 1;
    if uses[node] == 1 {
        nodes[node].operands.iter().for_each(|operand| count(nodes, *operand, uses));
    }
}

struct Writer<'a> {
    nodes: &'a [Node],
    uses: &'a [usize],
    slot: usize,
    /// Places of the scalars that are used, of which the first one has the number `first`.
    places: Vec<usize>,
    first: usize,
    scalars: &'a mut Vec<f32>,
}

impl Writer<'_> {
    fn node(&mut self, node: usize) -> String {
        let Node { text, operands } = &self.nodes[node];
        let mut parts = text.split('$');
        let mut expression = parts.next().expect("there is one part at least").to_owned();
        for part in parts {
            let (digit, rest) = part.split_at(1);
            let operand = operands[usize::from(digit.as_bytes()[0] - b'0')];
            let bare = self.operand(operand);
            let is_operator = matches!(operand, Term::Node(node) if self.uses[node] == 1 && !self.is_call(node));
            expression += &if is_operator && !self.is_call(node) { format!("({bare})") } else { bare };
            expression += rest;
        }
        expression
    }

    fn is_call(&self, node: usize) -> bool {
        self.nodes[node].text.ends_with(')')
    }

    fn operand(&mut self, term: Term) -> String {
        match term {
            Term::Constant(value) => format!("real({value})"),
            Term::Scalar(place, value) => {
                let at = self.places.iter().position(|used| *used == place).unwrap_or_else(|| {
                    self.places.push(place);
                    self.scalars.push(value);
                    self.places.len() - 1
                });
                format!("a.p{}", self.first + at)
            }
            Term::Slot(slot) => format!("t{slot}"),
            Term::Node(node) if self.uses[node] > 1 => format!("t{}_{node}", self.slot),
            Term::Node(node) => self.node(node),
        }
    }
}

impl<'a> Expression<'a> {
    fn new<const N: usize>(text: &'static str, operands: [Expression<'a>; N]) -> Expression<'a> {
        let arena = operands.iter().find_map(|operand| operand.arena).expect("functions of constants are constants");
        let mut nodes = arena.nodes.borrow_mut();
        nodes.push(Node { text, operands: operands.iter().map(|operand| operand.term).collect() });
        Expression { term: Term::Node(nodes.len() - 1), arena: Some(arena) }
    }

    /// True among whole numbers, where results out of range saturate.
    fn is_whole(self) -> bool {
        self.arena.is_some_and(|arena| arena.compute_type == ComputeType::I64)
    }
}

macro_rules! operators {
    ($($operator:ident, $function:ident = $text:literal $(or $whole:literal)?;)*) => {$(
        impl<'a> $operator for Expression<'a> {
            type Output = Expression<'a>;
            fn $function(self, other: Expression<'a>) -> Expression<'a> {
                $(if self.is_whole() || other.is_whole() {
                    return Expression::new($whole, [self, other]);
                })?
                Expression::new($text, [self, other])
            }
        }
    )*};
}

operators! {
    Add, add = "$0 + $1" or "whole_add($0, $1)";
    Sub, sub = "$0 - $1" or "whole_sub($0, $1)";
    Mul, mul = "$0 * $1" or "whole_mul($0, $1)";
    // Never of whole numbers, as it does not keep to them.
    Div, div = "$0 / $1";
    BitAnd, bitand = "$0 && $1";
    BitOr, bitor = "$0 || $1";
}

impl<'a> Neg for Expression<'a> {
    type Output = Expression<'a>;
    fn neg(self) -> Expression<'a> {
        if self.is_whole() { Expression::ZERO - self } else { Expression::new("-$0", [self]) }
    }
}

impl<'a> Number for Expression<'a> {
    type Truth = Expression<'a>;

    const ZERO: Expression<'a> = Expression { term: Term::Constant(0.0), arena: None };
    const ONE: Expression<'a> = Expression { term: Term::Constant(1.0), arena: None };

    fn constant(value: f64) -> Expression<'a> {
        Expression { term: Term::Constant(value), arena: None }
    }

    fn scalar(place: usize, value: f32) -> Expression<'a> {
        Expression { term: Term::Scalar(place, value), arena: None }
    }

    fn abs(self) -> Expression<'a> {
        if self.is_whole() {
            return Self::select(self.less(Self::ZERO), -self, self);
        }
        Expression::new("MATH(fabs)($0)", [self])
    }

    fn equal(self, other: Expression<'a>) -> Expression<'a> {
        Expression::new("$0 == $1", [self, other])
    }

    fn unequal(self, other: Expression<'a>) -> Expression<'a> {
        Expression::new("$0 != $1", [self, other])
    }

    fn less(self, other: Expression<'a>) -> Expression<'a> {
        Expression::new("$0 < $1", [self, other])
    }

    fn at_most(self, other: Expression<'a>) -> Expression<'a> {
        Expression::new("$0 <= $1", [self, other])
    }

    fn select(holds: Expression<'a>, yes: Expression<'a>, no: Expression<'a>) -> Expression<'a> {
        Expression::new("$0 ? $1 : $2", [holds, yes, no])
    }
}

macro_rules! functions {
    ($($function:ident = $text:literal),*) => {
        impl<'a> Real for Expression<'a> {
            fn mul_add(self, factor: Expression<'a>, term: Expression<'a>) -> Expression<'a> {
                Expression::new("MATH(fma)($0, $1, $2)", [self, factor, term])
            }

            $(fn $function(self) -> Expression<'a> {
                Expression::new($text, [self])
            })*
        }
    };
}

functions!(
    ceil = "MATH(ceil)($0)",
    floor = "MATH(floor)($0)",
    sqrt = "MATH(sqrt)($0)",
    exp = "MATH(exp)($0)",
    exp_m1 = "MATH(expm1)($0)",
    ln = "MATH(log)($0)",
    ln_1p = "MATH(log1p)($0)",
    sin = "MATH(sin)($0)",
    tan = "MATH(tan)($0)",
    tanh = "MATH(tanh)($0)",
    erf = "MATH(erf)($0)",
    erfc = "MATH(erfc)($0)"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_those_of_the_statements() {
        let clipped = Parameters {
            relu_lower_clip: -0.5,
            relu_upper_clip: 6.0,
            relu_lower_clip_slope: 0.1,
            ..Parameters::default()
        };
        let mut most = 0;
        for mode in PointwiseMode::ALL {
            for parameters in [Parameters::default(), clipped] {
                let mut called = Vec::new();
                statements(ComputeType::F32, *mode, &parameters, &[0, 1, 2], 3, &mut called);
                assert_eq!(scalar_count(ComputeType::F32, *mode, &parameters), called.len(), "{mode:?}");
                most = most.max(called.len());
            }
        }
        assert!(most >= 3, "expected modes with several scalars, got {most} at most");
    }
}
