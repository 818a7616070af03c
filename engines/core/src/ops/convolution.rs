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

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages tell directions apart, and the list has each.
    #[test]
    fn directions_have_names_of_their_own() {
        let [forward, data, weights] = Direction::ALL.map(Direction::name);
        assert!(forward.contains("forward") && data.contains("data") && weights.contains("weights"));
        assert!([data, weights].iter().all(|name| name.contains("backward")) && data != weights);
    }
}
