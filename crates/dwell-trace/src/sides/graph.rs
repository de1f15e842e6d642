//! Parts the nodes of a graph in two sides, so that most of the bytes go from one to the other.

use std::collections::BTreeMap;
use std::hash::Hash;

use crate::keyed::KeyedMap;

/// The traffic from one node to another.
pub(super) struct Edge<N> {
    pub(super) from: N,
    pub(super) to: N,
    pub(super) bytes: u64,
    /// The weight of the evidence that `from` is a client, in bytes.
    pub(super) clients: i64,
}

/// Returns the side of each node; false is the first one, that of the clients.
///
/// The pairs with the most bytes are parted first, each unless an earlier one forbids it. If there
/// are two sides between which everything goes, these are found; otherwise the lightest pair of
/// each circle stays within a side. Parts of the graph that have no connection are turned so that
/// clients are on the first side.
pub(super) fn color<N: Copy + Ord + Hash>(
    edges: impl IntoIterator<Item = Edge<N>>,
) -> KeyedMap<N, bool> {
    let mut pairs: BTreeMap<(N, N), u64> = BTreeMap::new();
    let mut votes: BTreeMap<N, i64> = BTreeMap::new();
    for Edge { from, to, bytes, clients } in edges {
        let vote = |of: &mut i64, by: i64| *of = of.saturating_add(by);
        vote(votes.entry(from).or_default(), clients);
        vote(votes.entry(to).or_default(), clients.saturating_neg());
        if from != to {
            *pairs.entry((from.min(to), from.max(to))).or_default() += bytes;
        }
    }
    let nodes: Vec<N> = votes.keys().copied().collect();
    let places: KeyedMap<N, usize> = nodes.iter().enumerate().map(|(at, &n)| (n, at)).collect();
    let mut pairs: Vec<((N, N), u64)> = pairs.into_iter().collect();
    pairs.sort_by_key(|&(pair, bytes)| (std::cmp::Reverse(bytes), pair));
    let mut sets = Sets::new(nodes.len());
    for ((a, b), _) in pairs {
        if let (Some(&a), Some(&b)) = (places.get(&a), places.get(&b)) {
            sets.part(a, b);
        }
    }
    // By connected part: the weight of the evidence that its root is on the side of the clients.
    let mut balance: KeyedMap<usize, i64> = KeyedMap::default();
    for (at, vote) in votes.values().enumerate() {
        let (root, is_other) = sets.find(at);
        let sum = balance.entry(root).or_default();
        *sum = sum.saturating_add(if is_other { vote.saturating_neg() } else { *vote });
    }
    let side = |at: usize, sets: &mut Sets| {
        let (root, is_other) = sets.find(at);
        let is_turned = balance.get(&root).is_some_and(|&sum| sum < 0);
        is_other != is_turned
    };
    nodes.iter().enumerate().map(|(at, &node)| (node, side(at, &mut sets))).collect()
}

/// Sets of nodes whose sides relative to each other are known.
struct Sets {
    /// The parent of each node, and true if it is on the other side than its parent.
    parents: Vec<(usize, bool)>,
    sizes: Vec<usize>,
}

impl Sets {
    fn new(nodes: usize) -> Self {
        Self { parents: (0..nodes).map(|at| (at, false)).collect(), sizes: vec![1; nodes] }
    }

    /// Returns the root of a node's set, and true if the node is on the other side than the root.
    fn find(&mut self, node: usize) -> (usize, bool) {
        let (mut root, mut is_other) = (node, false);
        while self.parents[root].0 != root {
            let (parent, differs) = self.parents[root];
            (root, is_other) = (parent, is_other ^ differs);
        }
        // Paths are shortened for the next time.
        let (mut at, mut side) = (node, is_other);
        while at != root {
            let (parent, differs) = self.parents[at];
            self.parents[at] = (root, side);
            (at, side) = (parent, side ^ differs);
        }
        (root, is_other)
    }

    /// Puts two nodes on different sides, unless their sides are known already.
    fn part(&mut self, a: usize, b: usize) {
        let ((a, is_other_a), (b, is_other_b)) = (self.find(a), self.find(b));
        if a == b {
            return;
        }
        let (small, large) = if self.sizes[a] < self.sizes[b] { (a, b) } else { (b, a) };
        // Opposite nodes, so roots on the same side if the nodes are on different ones already.
        self.parents[small] = (large, is_other_a == is_other_b);
        self.sizes[large] += self.sizes[small];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edge(from: u32, to: u32, bytes: u64, clients: i64) -> Edge<u32> {
        Edge { from, to, bytes, clients }
    }

    #[test]
    fn the_lightest_pair_of_a_circle_stays_within_a_side() {
        let sides = color([edge(1, 2, 100, 5), edge(2, 3, 50, 0), edge(3, 1, 10, 0)]);
        assert_eq!((sides[&1], sides[&2], sides[&3]), (false, true, false));
    }

    #[test]
    fn parts_without_connection_are_turned_by_their_clients() {
        let sides = color([edge(1, 2, 9, -5), edge(3, 4, 9, 5), edge(5, 6, 9, 0)]);
        assert_eq!([1, 2, 3, 4].map(|node| sides[&node]), [true, false, false, true]);
        assert_ne!(sides[&5], sides[&6]);
    }

    proptest! {
        /// Any two sides are found.
        #[test]
        fn two_sides_are_found(
            pairs in prop::collection::vec((0u32..20, 0u32..20, 1u64..1000), 1..80),
        ) {
            let sides = color(pairs.iter().map(|&(a, b, bytes)| edge(2 * a, 2 * b + 1, bytes, 1)));
            for (a, b, _) in pairs {
                prop_assert!(!sides[&(2 * a)] && sides[&(2 * b + 1)]);
            }
        }
    }
}
