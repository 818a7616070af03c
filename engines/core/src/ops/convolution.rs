//! Directions of convolutions.

/// Direction of a convolution: the tensor that is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// y from x and w.
    Forward,
    /// x from y and w.
    BackwardData,
    /// w from x and y.
    BackwardWeights,
}

impl Direction {
    /// All directions.
    pub const ALL: [Direction; 3] = [Direction::Forward, Direction::BackwardData, Direction::BackwardWeights];

    /// Name of the direction for messages.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::BackwardData => "backward data",
            Direction::BackwardWeights => "backward weights",
        }
    }
}
