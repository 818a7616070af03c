//! Element-wise kernels through tiles: where what is read is contiguous along another loop than what is written, a block loads a tile
//! along the one loop into shared memory and goes through it along the other, so that memory is accessed in long runs on both sides.

use super::{Block, Slot, Writer};
use crate::emit::arguments::quotient;
use crate::emit::grouped::schedule::Tile;

/// Elements by which rows of a tile lie further apart than they are long, so that columns of it are in more banks.
const PAD: u64 = 2;

impl Writer<'_> {
    /// Tile of an input that is read through one.
    pub(super) fn tile_of(&self, slot: &Slot) -> Option<Tile> {
        let tile = self.work.schedule.tile?;
        let Slot::Tensor { place, .. } = *slot else { return None };
        let inner = self.inner().expect("tiles are gone through in vectors");
        tile.is_crossed(&self.work.loops.places[place], inner).then_some(tile)
    }

    /// Emits a kernel without reductions of which each block takes a tile; returns the number of blocks.
    pub(super) fn elements_in_tiles(&mut self, tile: Tile) -> u64 {
        let work = self.work;
        let [pass] = &work.passes[..] else { unreachable!("an element-wise kernel has one pass") };
        let inner = self.inner().expect("tiles are gone through in vectors");
        let (extents, threads, width) = (&work.loops.extents, u64::from(work.schedule.mapping.threads()), self.width());
        let along = extents[inner].div_ceil(tile.rows);
        let across = extents[tile.across].div_ceil(tile.columns);
        self.arguments.divisor(work.wide, "along", along);
        self.arguments.divisor(work.wide, "across", across);
        self.index("columns", extents[tile.across] as i64);
        self.line(format_args!("const count thread = count(__builtin_amdgcn_workitem_id_x());"));
        self.line(format_args!("count n = count(__builtin_amdgcn_workgroup_id_x());"));
        for name in ["along", "across"] {
            let quotient = quotient(work.wide, "n", name);
            self.line(format_args!("const count n_{name} = {quotient};"));
            self.line(format_args!("const count {name} = n - n_{name} * count(a.{name});"));
            self.line(format_args!("n = n_{name};"));
        }
        for l in self.groups().filter(|l| *l != tile.across).rev() {
            self.arguments.divisor(work.wide, &format!("e{l}"), extents[l]);
            self.line(format_args!("const count n{l} = {};", quotient(work.wide, "n", &format!("e{l}"))));
            self.line(format_args!("const index j{l} = index(n - n{l} * count(a.e{l}));"));
            self.line(format_args!("n = n{l};"));
        }
        self.load_tiles(tile, pass);
        self.line(format_args!("barrier();"));
        let vectors = tile.rows / width;
        let turns = (vectors * tile.columns).div_ceil(threads);
        self.open(format_args!("_Pragma(\"unroll\") for (count turn = 0; turn < {turns}; ++turn) {{"));
        self.line(format_args!("const count item = thread + turn * {threads};"));
        self.line(format_args!("const count column = item / {vectors}, in_tile = item % {vectors};"));
        self.line(format_args!("const count m = along * {vectors} + in_tile;"));
        self.line(format_args!("const index j{} = index(across * {} + column);", tile.across, tile.columns));
        self.open(format_args!("if (j{} < a.columns && index(m) * {width} < a.inner) {{", tile.across));
        self.group_places();
        self.element(pass);
        self.close();
        self.close();
        let others = self.groups().filter(|l| *l != tile.across).map(|l| extents[l]).product::<u64>();
        others * along * across
    }

    /// Declares `tile<slot>`, and loads it.
    fn load_tiles(&mut self, tile: Tile, part: &Block<'_>) {
        let work = self.work;
        let inner = self.inner().expect("tiles are gone through in vectors");
        let threads = u64::from(work.schedule.mapping.threads());
        for (i, slot) in part.inputs.iter().enumerate() {
            if self.tile_of(slot).is_none() {
                continue;
            }
            let Slot::Tensor { tensor, place, .. } = *slot else { unreachable!("only tensors are read through tiles") };
            let (slot, c_type) = (part.kept + i, self.memory_type(work.reads[tensor]));
            // Every thread stores what it loads: with fewer loads than threads some would store beyond the tile's rows.
            let most = (tile.rows * tile.columns / threads).max(1);
            let width = tile.columns.min((16 / work.reads[tensor].bytes() as u64).max(1)).min(most);
            let (rows, columns, length) = (tile.rows, tile.columns, tile.columns + PAD);
            let (vectors, turns) = (columns / width, (rows * columns / width).div_ceil(threads));
            self.line(format_args!("static __attribute__((shared)) {c_type} tile{slot}[{rows}][{length}];"));
            self.open(format_args!("_Pragma(\"unroll\") for (count turn = 0; turn < {turns}; ++turn) {{"));
            self.line(format_args!("const count item = thread + turn * {threads};"));
            self.line(format_args!("const count row = item / {vectors}, column = item % {vectors} * {width};"));
            self.line(format_args!("const index j{inner} = index(along * {rows} + row);"));
            self.line(format_args!("const index j{} = index(across * {columns} + column);", tile.across));
            self.line(format_args!("{c_type} u[{width}] = {{}};"));
            let strides = work.loops.places[place].strides.clone();
            let at = self.sum(&format!("x{place}"), &strides, 0..strides.len()).join(" + ");
            self.open(format_args!("if (j{inner} < a.inner) {{"));
            let from = format!("r{tensor}_{place}");
            let vector = self.vector_of(place, width, work.reads[tensor].bytes(), tile.across);
            self.line(format_args!("if (j{} + {width} <= a.columns) load<{vector}>(u, {from} + ({at}));", tile.across));
            let each = format!("_Pragma(\"unroll\") for (int k = 0; k < {width}; ++k)");
            self.line(format_args!("else {each} if (j{} + k < a.columns) u[k] = {from}[{at} + k];", tile.across));
            self.close();
            self.line(format_args!("{each} tile{slot}[row][column + k] = u[k];"));
            self.close();
        }
    }
}
