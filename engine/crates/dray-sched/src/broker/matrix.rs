//! Linear algebra for the linear program: symmetric positive definite matrices, stored by rows.

/// Value for a pivot that rounding has made too small. With such a large pivot, the solution does
/// not move in the direction of the pivot.
const PIVOT_HUGE: f64 = 1e128;

/// Computes the Cholesky factor of a matrix in place, in the lower triangle.
pub(super) fn factorise(matrix: &mut [f64], size: usize) {
    for column in 0..size {
        let own = matrix[column * size + column];
        let mut pivot = own;
        for before in 0..column {
            pivot -= matrix[column * size + before].powi(2);
        }
        let pivot = if pivot > own.abs() * 1e-14 {
            pivot
        } else {
            PIVOT_HUGE
        };
        let root = pivot.sqrt();
        matrix[column * size + column] = root;
        for row in column + 1..size {
            let (above, below) = matrix.split_at_mut(row * size);
            let of_column = &above[column * size..column * size + column];
            let sum: f64 = of_column
                .iter()
                .zip(&below[..column])
                .map(|(a, b)| a * b)
                .sum();
            below[column] = (below[column] - sum) / root;
        }
    }
}

/// Solves a linear system in place, given the Cholesky factor of its matrix.
pub(super) fn substitute(lower: &[f64], right: &mut [f64]) {
    let size = right.len();
    for row in 0..size {
        let sum: f64 = (0..row).map(|at| lower[row * size + at] * right[at]).sum();
        right[row] = (right[row] - sum) / lower[row * size + row];
    }
    for row in (0..size).rev() {
        let sum: f64 = (row + 1..size)
            .map(|at| lower[at * size + row] * right[at])
            .sum();
        right[row] = (right[row] - sum) / lower[row * size + row];
    }
}

/// Inverts a small symmetric positive definite matrix in place.
pub(super) fn invert(matrix: &mut [f64], size: usize) {
    factorise(matrix, size);
    let lower = matrix.to_vec();
    for column in 0..size {
        let mut unit = vec![0.0; size];
        unit[column] = 1.0;
        substitute(&lower, &mut unit);
        for row in 0..size {
            matrix[row * size + column] = unit[row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{factorise, invert, substitute};

    #[test]
    fn a_solution_satisfies_its_equations() {
        let matrix = [4.0, 2.0, 0.6, 2.0, 5.0, 1.0, 0.6, 1.0, 3.0];
        let right = [1.0, 2.0, 3.0];
        let back = |solved: &[f64]| -> Vec<f64> {
            let row = |row: usize| (0..3).map(|at| matrix[row * 3 + at] * solved[at]).sum();
            (0..3).map(row).collect()
        };
        let is_near = |found: &[f64], wanted: &[f64]| {
            (found.iter().zip(wanted)).all(|(found, wanted)| (found - wanted).abs() < 1e-12)
        };
        let mut lower = matrix;
        factorise(&mut lower, 3);
        let mut solved = right;
        substitute(&lower, &mut solved);
        assert!(is_near(&back(&solved), &right));
        let mut inverse = matrix;
        invert(&mut inverse, 3);
        for column in 0..3 {
            let of_column: Vec<f64> = (0..3).map(|row| inverse[row * 3 + column]).collect();
            let mut unit = [0.0; 3];
            unit[column] = 1.0;
            assert!(is_near(&back(&of_column), &unit));
        }
    }

    #[test]
    fn a_zero_pivot_gives_a_zero_component() {
        let mut lower = [1.0, 1.0, 1.0, 1.0];
        factorise(&mut lower, 2);
        let mut solved = [2.0, 2.0];
        substitute(&lower, &mut solved);
        assert!((solved[0] - 2.0).abs() < 1e-12 && solved[1].abs() < 1e-12);
    }
}
