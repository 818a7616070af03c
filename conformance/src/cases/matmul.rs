//! Products of matrices.

use hipdnn_schemas::{DataType, Extents, Matmul, Operation};
use serde::Deserialize;

use super::net::Net;
use super::tail::{self, Types};
use super::{Case, Layout, text};

/// A table of products: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    /// `a extents * b extents`.
    shapes: Vec<String>,
    /// One type for all, or `a,b,c`.
    types: Vec<String>,
    /// Of a and of b: `n` as it is, `t` with the last two dimensions in the other order in memory, `p` padded rows.
    orders: Vec<String>,
    #[serde(default = "nothing")]
    tails: Vec<String>,
}

fn nothing() -> Vec<String> {
    vec![String::new()]
}

fn strides(dims: &[i64], order: char) -> Result<Extents, String> {
    let rank = dims.len();
    Ok(match order {
        'n' => Layout::First.strides(dims),
        'p' => Layout::Padded.strides(dims),
        't' => {
            let mut turned = dims.to_vec();
            turned.swap(rank - 1, rank - 2);
            let mut strides = Layout::First.strides(&turned);
            strides.swap(rank - 1, rank - 2);
            strides
        }
        other => return Err(format!("expected n, t or p, got {other}")),
    })
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            for types in &self.types {
                for order in &self.orders {
                    for tail in &self.tails {
                        let case = self.case(shape, types, order, tail);
                        cases.push(case.map_err(|problem| format!("{}: {shape}: {problem}", self.name))?);
                    }
                }
            }
        }
        Ok(())
    }

    fn case(&self, shape: &str, types: &str, order: &str, tail: &str) -> Result<Case, String> {
        let (a, b) = shape.split_once('*').ok_or_else(|| format!("expected a * b, got {shape:?}"))?;
        let (a, b) = (text::numbers(a)?, text::numbers(b)?);
        let listed: Vec<DataType> = types.split(',').map(text::data_type).collect::<Result<_, _>>()?;
        let [ta, tb, tc] = match listed[..] {
            [all] => [all; 3],
            [a, b, c] => [a, b, c],
            _ => return Err(format!("expected one type or three, got {types:?}")),
        };
        let rank = a.len();
        let mut c: Vec<i64> = a.iter().zip(&b).map(|(a, b)| *a.max(b)).collect();
        c[rank - 2] = a[rank - 2];
        c[rank - 1] = b[rank - 1];
        let mut orders = order.chars();
        let (first, second) = (orders.next().unwrap_or('n'), orders.next().unwrap_or('n'));
        let mut net = Net::new(DataType::Float);
        let left = net.real("a", ta, &a, Layout::First);
        net.tensor(left).strides = strides(&a, first)?;
        let right = net.real("b", tb, &b, Layout::First);
        net.tensor(right).strides = strides(&b, second)?;
        let result = match tail.is_empty() {
            true => net.real("c", tc, &c, Layout::First),
            false => net.intermediate("c", DataType::Float, &c, Layout::First),
        };
        net.node(Operation::Matmul(Matmul { a: left, b: right, c: result }));
        let types_of_tail = Types { intermediate: DataType::Float, io: tc, compute: DataType::Float };
        tail::append(&mut net, result, &c, Layout::First, tail, types_of_tail)?;
        let tail = if tail.is_empty() { String::new() } else { format!("/{}", text::dashed(tail)) };
        let name = format!(
            "{}/{order}/{}/{}-by-{}{tail}",
            self.name,
            types.replace(',', "-"),
            text::extents(&a),
            text::extents(&b)
        );
        Ok(Case::new(name, net))
    }
}
