//! Divides the remaining capacity of resources among running transfers.

use super::{Scene, TransferIndex, TransferView};

/// Fractions of a capacity that are smaller than this count as zero.
const NOTHING: f64 = 1e-12;

/// Capacity that remains while orders are being computed.
#[derive(Debug, Clone)]
pub struct RemainingCapacity {
    left: Vec<f64>,
    capacities: Vec<f64>,
}

impl RemainingCapacity {
    /// Starts with the full capacity of each resource in the scene.
    #[must_use]
    pub fn new(scene: &Scene<'_>) -> Self {
        Self {
            left: scene.capacities.to_vec(),
            capacities: scene.capacities.to_vec(),
        }
    }

    /// Returns the remaining capacity of a resource in bytes per second.
    #[must_use]
    pub fn left(&self, resource: super::ResourceIndex) -> f64 {
        self.left[resource.0]
    }

    /// Gives capacity to one transfer, and returns the rate of this transfer. The rate is the
    /// lowest of `wish`, the ceiling of the transfer, and the remaining capacity of each of its
    /// resources.
    pub fn take(&mut self, seen: &TransferView<'_>, wish: f64) -> f64 {
        let ceiling = seen.transfer.ceiling.unwrap_or(f64::INFINITY);
        let resources = &seen.transfer.resources;
        let room = resources.iter().map(|resource| self.left[resource.0]);
        let rate = room.fold(wish.min(ceiling), f64::min).max(0.0);
        for resource in resources {
            self.left[resource.0] = (self.left[resource.0] - rate).max(0.0);
        }
        rate
    }

    /// Gives capacity to transfers in this order, to each as much as it can use.
    #[must_use]
    pub fn in_order(mut self, order: &[&TransferView<'_>]) -> Vec<(TransferIndex, f64)> {
        let rates = order
            .iter()
            .map(|seen| (seen.index, self.take(seen, f64::INFINITY)));
        rates.filter(|(_, rate)| *rate > 0.0).collect()
    }

    /// Divides capacity by weight. All rates grow in proportion to their weights. The rate of a
    /// transfer stops growing when one of its resources is exhausted or its ceiling is reached.
    /// This is weighted max-min fairness by progressive filling (Bertsekas and Gallager, Data
    /// Networks, section 6.5.2).
    ///
    /// # Panics
    /// If a transfer has neither a ceiling nor a resource, because its rate would be infinite.
    #[must_use]
    pub fn by_weight(mut self, wishes: &[(&TransferView<'_>, f64)]) -> Vec<(TransferIndex, f64)> {
        let mut rates = vec![0.0; wishes.len()];
        let mut growing: Vec<usize> = (0..wishes.len()).filter(|&at| wishes[at].1 > 0.0).collect();
        while !growing.is_empty() {
            let mut weights = vec![0.0; self.left.len()];
            for &at in &growing {
                for resource in &wishes[at].0.transfer.resources {
                    weights[resource.0] += wishes[at].1;
                }
            }
            let of_resources = (self.left.iter().zip(&weights))
                .filter(|(_, weight)| **weight > 0.0)
                .map(|(left, weight)| left / weight);
            let of_ceilings = growing.iter().filter_map(|&at| {
                let ceiling = wishes[at].0.transfer.ceiling?;
                Some((ceiling - rates[at]) / wishes[at].1)
            });
            let step = of_resources
                .chain(of_ceilings)
                .fold(f64::INFINITY, f64::min);
            assert!(
                step.is_finite(),
                "a transfer must use a resource or have a maximum rate"
            );
            for &at in &growing {
                rates[at] += step * wishes[at].1;
            }
            for (left, weight) in self.left.iter_mut().zip(&weights) {
                *left = (*left - step * weight).max(0.0);
            }
            growing.retain(|&at| {
                let transfer = wishes[at].0.transfer;
                let has_room = transfer
                    .resources
                    .iter()
                    .all(|resource| self.left[resource.0] > self.capacities[resource.0] * NOTHING);
                let ceiling = transfer.ceiling.unwrap_or(f64::INFINITY);
                has_room && rates[at] < ceiling * (1.0 - NOTHING)
            });
        }
        let indices = wishes.iter().map(|(seen, _)| seen.index);
        indices.zip(rates).filter(|(_, rate)| *rate > 0.0).collect()
    }
}
