//! Makes plans by linear programming, for demands for which the module [`fill`] finds no plan.
//!
//! The linear program minimises the sum of all shortfalls, each relative to the size of its demand.
//! Mehrotra's predictor-corrector method solves it (Wright, Primal-Dual Interior-Point Methods,
//! 1997, chapter 10), from a point that is feasible for the primal and the dual problem. A resource
//! constrains only demands in the same interval. So the normal equations consist of one small block
//! for each interval and one dense block for the demands. With n demands, K intervals and R
//! resources, each of about twenty steps costs O(n^3 + K n^2 R).
//!
//! Only this part of the broker has floating-point numbers. A solution is rounded down to bytes,
//! filled up, and accepted only if the result is a plan. A lower bound from the dual problem proves
//! that the demands do not fit. If the steps end before this proof, the demands are refused too.

use super::fill::{self, Fill};
use super::matrix::{factorise, invert, substitute};
use super::need::{Grid, Need};
use super::plan::{Plan, short_max};

/// Maximum number of steps of the method. About twenty are usual.
const STEPS_MAX: usize = 80;

/// The demands count as fitting up to this sum of relative shortfalls, below [`short_max`].
const LACK_MAX: f64 = 1e-4;

/// The method stops when the relative gap between objective and bound is smaller than this.
const GAP_MAX: f64 = 1e-7;

/// A step goes at most this fraction of the distance to the border of the feasible region.
const STEP_PART: f64 = 0.995;

/// Question that the method answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Decide whether all demands fit. Stop as soon as the answer is certain.
    Fit,
    /// Maximise the number of bytes. Stop at the optimum.
    Bytes,
}

/// Returns a plan for the need. Returns `None` if the demands do not fit.
pub(crate) fn plan(need: &Need, grid: &Grid) -> Option<Plan> {
    let mut program = Program::new(need, grid, Goal::Fit)?;
    program.solve(Goal::Fit);
    if program.lack() > LACK_MAX {
        return None;
    }
    rounded(need, grid, &program)
}

/// Returns an upper bound: no plan moves more bytes of the demands. Bytes of incomplete demands
/// count too. The bound comes from the dual problem, so it is valid even if the interior-point
/// method has not converged. Returns `None` if no byte can move.
#[must_use]
pub fn bytes_bound(need: &Need) -> Option<f64> {
    let grid = Grid::new(need);
    let mut program = Program::new(need, &grid, Goal::Bytes)?;
    let all: f64 = program.sizes.iter().sum();
    let bound = program.solve(Goal::Bytes);
    Some((all - bound.max(0.0)) * program.unit)
}

/// Converts floating-point amounts to bytes: rounds down, then places the remaining bytes.
fn rounded(need: &Need, grid: &Grid, program: &Program) -> Option<Plan> {
    let mut grid = grid.clone();
    let mut amounts = vec![vec![0u64; grid.intervals()]; need.demands.len()];
    for (cell, at) in program.cells.iter().enumerate() {
        let demand = &need.demands[at.demand];
        let placed: u64 = amounts[at.demand].iter().sum();
        // Rust's conversion saturates, so the result is between zero and the largest integer.
        let bytes = (program.x[cell] * program.unit).floor() as u64;
        let part = bytes
            .min(grid.free(demand, at.interval))
            .min(demand.bytes - placed);
        grid.take(demand, at.interval, part);
        amounts[at.demand][at.interval] += part;
    }
    for index in fill::order(need) {
        let demand = &need.demands[index];
        let left = demand.bytes - amounts[index].iter().sum::<u64>();
        let left = fill::place(&mut grid, demand, left, Fill::Earliest, &mut amounts[index]);
        if left > short_max(demand.bytes) {
            return None;
        }
    }
    Some(Plan {
        cuts: grid.cuts,
        keys: need.demands.iter().map(|demand| demand.key).collect(),
        amounts,
    })
}

/// One variable of the program: the amount of a demand in an interval.
struct Cell {
    demand: usize,
    interval: usize,
    /// Ceiling of the amount. `None` if a resource always limits the amount more.
    most: Option<f64>,
}

/// One capacity constraint: a resource in an interval.
struct Row {
    room: f64,
}

/// The linear program and its current point. Amounts are in units of the largest demand.
struct Program {
    unit: f64,
    sizes: Vec<f64>,
    /// Cost of one unit of shortfall, per demand.
    costs: Vec<f64>,
    cells: Vec<Cell>,
    /// Indices of the cells of each interval.
    of_interval: Vec<Vec<usize>>,
    /// Indices of the rows of each cell.
    rows_of: Vec<Vec<usize>>,
    rows: Vec<Row>,
    /// Indices of the rows of each interval.
    rows_in: Vec<Vec<usize>>,
    /// Primal variables: amounts (`x`), slacks below the ceilings (`v`), shortfalls of the demands
    /// (`y`), slacks of the rows (`s`).
    x: Vec<f64>,
    v: Vec<f64>,
    y: Vec<f64>,
    s: Vec<f64>,
    /// Dual variables of `x`, `v`, `y` and `s`.
    zx: Vec<f64>,
    w: Vec<f64>,
    zy: Vec<f64>,
    zs: Vec<f64>,
    /// Dual prices of the demands (`p`) and of the rows (`q`).
    p: Vec<f64>,
    q: Vec<f64>,
}

/// A direction or a set of right-hand sides. The fields have the same meaning as in [`Program`].
#[derive(Clone)]
struct Step {
    x: Vec<f64>,
    v: Vec<f64>,
    y: Vec<f64>,
    s: Vec<f64>,
    zx: Vec<f64>,
    w: Vec<f64>,
    zy: Vec<f64>,
    zs: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
}

/// Factors of the normal equations at one point.
struct Factors {
    /// Diagonal weights of the amounts.
    d: Vec<f64>,
    /// Inverse block of each interval, as a dense matrix stored by rows.
    blocks: Vec<Vec<f64>>,
    /// Lower triangle of the block of the demands.
    lower: Vec<f64>,
}

impl Program {
    /// Builds the program. Returns `None` if no demand can move a byte.
    fn new(need: &Need, grid: &Grid, goal: Goal) -> Option<Self> {
        let unit = need.demands.iter().map(|demand| demand.bytes).max()?.max(1) as f64;
        let intervals = grid.intervals();
        let mut cells = Vec::new();
        let mut of_interval = vec![Vec::new(); intervals];
        let mut rows_of = Vec::new();
        let mut rows: Vec<Row> = Vec::new();
        let mut rows_in = vec![Vec::new(); intervals];
        let mut row_at = vec![vec![usize::MAX; intervals]; need.capacities.len()];
        for (index, demand) in need.demands.iter().enumerate() {
            for interval in grid.window(demand) {
                if grid.free(demand, interval) == 0 {
                    continue;
                }
                let known = (demand.resources.iter())
                    .filter_map(|resource| Some((*resource, grid.room[*resource].as_ref()?)));
                let mut of_cell = Vec::new();
                let mut least = f64::INFINITY;
                for (resource, room) in known {
                    let place = &mut row_at[resource][interval];
                    let room = room[interval] as f64 / unit;
                    least = least.min(room);
                    if *place == usize::MAX {
                        *place = rows.len();
                        rows_in[interval].push(rows.len());
                        rows.push(Row { room });
                    }
                    if !of_cell.contains(place) {
                        of_cell.push(*place);
                    }
                }
                let own = demand
                    .ceiling
                    .map(|rate| super::wish::bytes_in(rate, grid.nanos(interval)) as f64 / unit);
                of_interval[interval].push(cells.len());
                rows_of.push(of_cell);
                cells.push(Cell {
                    demand: index,
                    interval,
                    most: own.filter(|own| *own < least),
                });
            }
        }
        if cells.is_empty() {
            return None;
        }
        let sizes: Vec<f64> = (need.demands.iter())
            .map(|demand| (demand.bytes as f64 / unit).max(1e-12))
            .collect();
        let costs = match goal {
            Goal::Fit => sizes.iter().map(|size| 1.0 / size).collect(),
            Goal::Bytes => vec![1.0; sizes.len()],
        };
        let mut program = Self {
            unit,
            x: vec![0.0; cells.len()],
            v: vec![f64::INFINITY; cells.len()],
            y: sizes.clone(),
            s: rows.iter().map(|row| row.room).collect(),
            zx: vec![0.0; cells.len()],
            w: vec![0.0; cells.len()],
            zy: vec![0.0; sizes.len()],
            zs: vec![0.0; rows.len()],
            p: vec![0.0; sizes.len()],
            q: vec![0.0; rows.len()],
            sizes,
            costs,
            cells,
            of_interval,
            rows_of,
            rows,
            rows_in,
        };
        program.begin();
        Some(program)
    }

    /// Sets the starting point, which is strictly feasible for the primal and the dual problem.
    fn begin(&mut self) {
        let mut users = vec![0.0; self.rows.len()];
        let mut windows = vec![0.0; self.sizes.len()];
        for (cell, at) in self.cells.iter().enumerate() {
            windows[at.demand] += 1.0;
            for row in &self.rows_of[cell] {
                users[*row] += 1.0;
            }
        }
        let mean = self.costs.iter().sum::<f64>() / self.costs.len() as f64;
        for (cell, at) in self.cells.iter().enumerate() {
            let mut most = self.sizes[at.demand] / windows[at.demand];
            for row in &self.rows_of[cell] {
                most = most.min(self.rows[*row].room / users[*row]);
            }
            most = at.most.map_or(most, |bound| most.min(bound));
            self.x[cell] = most / 2.0;
            self.y[at.demand] -= self.x[cell];
            for row in &self.rows_of[cell] {
                self.s[*row] -= self.x[cell];
            }
            if let Some(bound) = at.most {
                self.v[cell] = bound - self.x[cell];
                self.w[cell] = mean;
            }
        }
        self.q.fill(-mean);
        self.zs.fill(mean);
        for demand in 0..self.sizes.len() {
            // The price is negative, so that the dual slack of a cell without rows is positive too.
            self.p[demand] = -mean;
            self.zy[demand] = self.costs[demand] + mean;
        }
        for cell in 0..self.cells.len() {
            let prices = self.p[self.cells[cell].demand]
                + self.rows_of[cell]
                    .iter()
                    .map(|row| self.q[*row])
                    .sum::<f64>();
            self.zx[cell] = self.w[cell] - prices;
        }
    }

    /// Returns the objective: the sum of the shortfalls, weighted by cost.
    fn objective(&self) -> f64 {
        self.y
            .iter()
            .zip(&self.costs)
            .map(|(y, cost)| y * cost)
            .sum()
    }

    /// Returns the sum of the shortfalls, each as a fraction of the demand's size.
    fn lack(&self) -> f64 {
        self.y
            .iter()
            .zip(&self.sizes)
            .map(|(y, size)| y / size)
            .sum()
    }

    /// Returns the dual objective, which is a lower bound of the objective.
    fn bound(&self) -> f64 {
        let demands: f64 = self
            .sizes
            .iter()
            .zip(&self.p)
            .map(|(size, p)| size * p)
            .sum();
        let rows: f64 = (self.rows.iter().zip(&self.q))
            .map(|(row, q)| row.room * q)
            .sum();
        let ceilings: f64 = (self.cells.iter().zip(&self.w))
            .filter_map(|(cell, w)| Some(cell.most? * w))
            .sum();
        demands + rows - ceilings
    }

    /// Iterates until `goal` is answered. Returns the best bound found.
    fn solve(&mut self, goal: Goal) -> f64 {
        let mut best = 0.0f64;
        let scale = match goal {
            Goal::Fit => 1.0,
            Goal::Bytes => self.sizes.iter().sum(),
        };
        for _ in 0..STEPS_MAX {
            let (objective, bound) = (self.objective(), self.bound());
            best = best.max(bound);
            let is_answered = match goal {
                Goal::Fit => self.lack() <= LACK_MAX / 4.0 || best > LACK_MAX,
                Goal::Bytes => false,
            };
            if is_answered || objective - best <= GAP_MAX * scale || !self.step() {
                break;
            }
        }
        best.max(self.bound())
    }

    /// Makes a predictor step and a corrector step. Returns false if rounding prevents progress.
    fn step(&mut self) -> bool {
        let factors = self.factors();
        let affine = self.direction(&factors, 0.0, None);
        let (primal, dual) = self.lengths(&affine);
        let pairs = self.pairs();
        let mu = self.gap(None, 0.0, 0.0) / pairs;
        let after = self.gap(Some(&affine), primal, dual) / pairs;
        let centre = (after / mu).powi(3).clamp(0.0, 1.0);
        let step = self.direction(&factors, centre * mu, Some(&affine));
        let (primal, dual) = self.lengths(&step);
        let (primal, dual) = (primal * STEP_PART, dual * STEP_PART);
        if !primal.is_finite() || !dual.is_finite() || primal.max(dual) < 1e-10 {
            return false;
        }
        let go = |values: &mut Vec<f64>, by: &[f64], length: f64| {
            for (value, by) in values.iter_mut().zip(by) {
                *value += length * by;
            }
        };
        go(&mut self.x, &step.x, primal);
        go(&mut self.y, &step.y, primal);
        go(&mut self.s, &step.s, primal);
        go(&mut self.zy, &step.zy, dual);
        go(&mut self.zs, &step.zs, dual);
        go(&mut self.p, &step.p, dual);
        go(&mut self.q, &step.q, dual);
        go(&mut self.zx, &step.zx, dual);
        for cell in 0..self.cells.len() {
            if self.cells[cell].most.is_some() {
                self.v[cell] += primal * step.v[cell];
                self.w[cell] += dual * step.w[cell];
            }
        }
        true
    }

    /// Returns the number of primal-dual products in the duality gap.
    fn pairs(&self) -> f64 {
        let bounded = self.cells.iter().filter(|cell| cell.most.is_some()).count();
        (self.x.len() + bounded + self.y.len() + self.s.len()) as f64
    }

    /// Returns the duality gap after a step. `primal` and `dual` are the step lengths.
    fn gap(&self, step: Option<&Step>, primal: f64, dual: f64) -> f64 {
        let sum = |one: &[f64], two: &[f64], by: Option<(&[f64], &[f64])>| -> f64 {
            (0..one.len())
                .filter(|at| one[*at].is_finite())
                .map(|at| match by {
                    Some((a, b)) => (one[at] + primal * a[at]) * (two[at] + dual * b[at]),
                    None => one[at] * two[at],
                })
                .sum()
        };
        sum(
            &self.x,
            &self.zx,
            step.map(|step| (&step.x[..], &step.zx[..])),
        ) + sum(
            &self.v,
            &self.w,
            step.map(|step| (&step.v[..], &step.w[..])),
        ) + sum(
            &self.y,
            &self.zy,
            step.map(|step| (&step.y[..], &step.zy[..])),
        ) + sum(
            &self.s,
            &self.zs,
            step.map(|step| (&step.s[..], &step.zs[..])),
        )
    }

    /// Returns the maximum step lengths, at most 1, for the primal and for the dual variables.
    fn lengths(&self, step: &Step) -> (f64, f64) {
        let most = |values: &[f64], by: &[f64]| {
            (values.iter().zip(by)).fold(1.0f64, |most, (value, by)| {
                if *by < 0.0 {
                    most.min(-value / by)
                } else {
                    most
                }
            })
        };
        let primal = most(&self.x, &step.x)
            .min(most(&self.v, &step.v))
            .min(most(&self.y, &step.y))
            .min(most(&self.s, &step.s));
        let dual = most(&self.zx, &step.zx)
            .min(most(&self.w, &step.w))
            .min(most(&self.zy, &step.zy))
            .min(most(&self.zs, &step.zs));
        (primal, dual)
    }

    fn factors(&self) -> Factors {
        let count = self.sizes.len();
        let d: Vec<f64> = (0..self.cells.len())
            .map(|cell| {
                let ceiling = match self.cells[cell].most {
                    Some(_) => self.w[cell] / self.v[cell],
                    None => 0.0,
                };
                1.0 / (self.zx[cell] / self.x[cell] + ceiling)
            })
            .collect();
        let mut lower = vec![0.0; count * count];
        for demand in 0..count {
            lower[demand * count + demand] = self.y[demand] / self.zy[demand];
        }
        let mut blocks = Vec::with_capacity(self.of_interval.len());
        for (interval, cells) in self.of_interval.iter().enumerate() {
            let rows = &self.rows_in[interval];
            let mut block = vec![0.0; rows.len() * rows.len()];
            for (at, row) in rows.iter().enumerate() {
                block[at * rows.len() + at] = self.s[*row] / self.zs[*row];
            }
            let local: Vec<Vec<usize>> = cells.iter().map(|cell| self.local(*cell)).collect();
            for (cell, of_cell) in cells.iter().zip(&local) {
                for one in of_cell {
                    for two in of_cell {
                        block[one * rows.len() + two] += d[*cell];
                    }
                }
            }
            invert(&mut block, rows.len());
            for (at, cell) in cells.iter().enumerate() {
                let demand = self.cells[*cell].demand;
                lower[demand * count + demand] += d[*cell];
                // Add up the columns of the block for the rows of this cell.
                let mut column = vec![0.0; rows.len()];
                for two in &local[at] {
                    for (one, sum) in column.iter_mut().enumerate() {
                        *sum += block[one * rows.len() + two];
                    }
                }
                for (other, of_other) in cells.iter().zip(&local).take(at + 1) {
                    let sum: f64 = of_other.iter().map(|one| column[*one]).sum();
                    let (high, low) = (demand, self.cells[*other].demand);
                    // Cells of an interval are in the order of their demands: `high` >= `low`.
                    lower[high * count + low] -= d[*cell] * d[*other] * sum;
                }
            }
            blocks.push(block);
        }
        factorise(&mut lower, count);
        Factors { d, blocks, lower }
    }

    /// Returns the positions of a cell's rows among the rows of its interval.
    fn local(&self, cell: usize) -> Vec<usize> {
        let rows = &self.rows_in[self.cells[cell].interval];
        let place = |row: &usize| rows.iter().position(|other| other == row);
        self.rows_of[cell].iter().filter_map(place).collect()
    }

    /// Returns Newton's direction to the point at which all primal-dual products equal `mu`, with
    /// the second-order correction from `affine`, if given.
    fn direction(&self, factors: &Factors, mu: f64, affine: Option<&Step>) -> Step {
        let target = |one: &[f64], two: &[f64], by: Option<(&[f64], &[f64])>| -> Vec<f64> {
            (0..one.len())
                .map(|at| {
                    let second = by.map_or(0.0, |(a, b)| a[at] * b[at]);
                    mu - one[at] * two[at] - second
                })
                .collect()
        };
        let rx = target(&self.x, &self.zx, affine.map(|a| (&a.x[..], &a.zx[..])));
        let rv = target(&self.v, &self.w, affine.map(|a| (&a.v[..], &a.w[..])));
        let ry = target(&self.y, &self.zy, affine.map(|a| (&a.y[..], &a.zy[..])));
        let rs = target(&self.s, &self.zs, affine.map(|a| (&a.s[..], &a.zs[..])));
        // Residuals of the constraints, which are not exactly zero because of rounding.
        let mut hp = self.sizes.clone();
        let mut hq: Vec<f64> = self.rows.iter().map(|row| row.room).collect();
        for demand in 0..hp.len() {
            hp[demand] -= self.y[demand] + ry[demand] / self.zy[demand];
        }
        for row in 0..hq.len() {
            hq[row] -= self.s[row] + rs[row] / self.zs[row];
        }
        let mut g = vec![0.0; self.cells.len()];
        for cell in 0..self.cells.len() {
            g[cell] = rx[cell] / self.x[cell];
            if self.cells[cell].most.is_some() {
                g[cell] -= rv[cell] / self.v[cell];
            }
            let known = self.x[cell] + factors.d[cell] * g[cell];
            hp[self.cells[cell].demand] -= known;
            for row in &self.rows_of[cell] {
                hq[*row] -= known;
            }
        }
        let (p, q) = self.prices(factors, hp, &hq);
        let mut step = Step {
            x: vec![0.0; self.cells.len()],
            v: vec![0.0; self.cells.len()],
            zx: vec![0.0; self.cells.len()],
            w: vec![0.0; self.cells.len()],
            zy: p.iter().map(|p| -p).collect(),
            zs: q.iter().map(|q| -q).collect(),
            y: (0..p.len())
                .map(|at| (ry[at] + self.y[at] * p[at]) / self.zy[at])
                .collect(),
            s: (0..q.len())
                .map(|at| (rs[at] + self.s[at] * q[at]) / self.zs[at])
                .collect(),
            p,
            q,
        };
        for cell in 0..self.cells.len() {
            let price = step.p[self.cells[cell].demand]
                + self.rows_of[cell]
                    .iter()
                    .map(|row| step.q[*row])
                    .sum::<f64>();
            let dx = factors.d[cell] * (price + g[cell]);
            step.x[cell] = dx;
            step.zx[cell] = (rx[cell] - self.zx[cell] * dx) / self.x[cell];
            if self.cells[cell].most.is_some() {
                step.v[cell] = -dx;
                step.w[cell] = (rv[cell] + self.w[cell] * dx) / self.v[cell];
            }
        }
        step
    }

    /// Solves the normal equations for the prices of demands and rows.
    fn prices(&self, factors: &Factors, mut hp: Vec<f64>, hq: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let solve_rows = |interval: usize, right: &[f64]| -> Vec<f64> {
            let size = right.len();
            let block = &factors.blocks[interval];
            let row = |at: usize| &block[at * size..(at + 1) * size];
            (0..size)
                .map(|at| row(at).iter().zip(right).map(|(a, b)| a * b).sum())
                .collect()
        };
        for (interval, cells) in self.of_interval.iter().enumerate() {
            let right: Vec<f64> = self.rows_in[interval].iter().map(|row| hq[*row]).collect();
            let solved = solve_rows(interval, &right);
            for cell in cells {
                let sum: f64 = self.local(*cell).iter().map(|row| solved[*row]).sum();
                hp[self.cells[*cell].demand] -= factors.d[*cell] * sum;
            }
        }
        substitute(&factors.lower, &mut hp);
        let mut q = vec![0.0; hq.len()];
        for (interval, cells) in self.of_interval.iter().enumerate() {
            let rows = &self.rows_in[interval];
            let mut right: Vec<f64> = rows.iter().map(|row| hq[*row]).collect();
            for cell in cells {
                let part = factors.d[*cell] * hp[self.cells[*cell].demand];
                for row in self.local(*cell) {
                    right[row] -= part;
                }
            }
            for (row, price) in rows.iter().zip(solve_rows(interval, &right)) {
                q[*row] = price;
            }
        }
        (hp, q)
    }
}
