//! Places for packets.

use dwell_policy::PacketId;

/// Places for packets, by the names that the core knows them by. Places are made as they are needed
/// and used again with what they hold, so that memory follows the longest queue and nothing is
/// allocated once that was reached.
#[derive(Clone, Debug, Default)]
pub struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// Returns a free place and its name. What was there before is still in it.
    ///
    /// # Panics
    /// If more than 2^32 packets wait.
    pub fn take(&mut self) -> (PacketId, &mut T) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(T::default());
            u32::try_from(self.places.len() - 1).expect("fewer packets wait than 2^32")
        });
        (PacketId(at), &mut self.places[at as usize])
    }

    /// Puts a packet into a free place.
    pub fn insert(&mut self, value: T) -> PacketId {
        let (id, place) = self.take();
        *place = value;
        id
    }

    /// Returns the place of this name.
    ///
    /// # Panics
    /// If there never was one.
    pub fn get(&self, id: PacketId) -> &T {
        &self.places[id.0 as usize]
    }

    /// Returns the place of this name, to change it.
    ///
    /// # Panics
    /// If there never was one.
    pub fn get_mut(&mut self, id: PacketId) -> &mut T {
        &mut self.places[id.0 as usize]
    }

    /// Returns all places, free ones too.
    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut()
    }

    /// Gives a place back, with what it holds.
    pub fn release(&mut self, id: PacketId) {
        self.free.push(id.0);
    }

    /// Takes a packet out of its place, and gives the place back.
    pub fn remove(&mut self, id: PacketId) -> T {
        self.release(id);
        std::mem::take(&mut self.places[id.0 as usize])
    }

    /// Returns the number of places that are taken.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns true if no place is taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_with_their_storage() {
        let mut slab: Slab<Vec<u8>> = Slab::default();
        let first = slab.insert(Vec::with_capacity(100));
        let second = slab.insert(vec![7]);
        slab.release(first);
        assert_eq!((slab.len(), slab.is_empty()), (1, false));
        let (again, place) = slab.take();
        assert_eq!((again, place.capacity()), (first, 100));
        assert_eq!(slab.remove(second), [7]);
        assert!(slab.get(second).is_empty());
    }

    #[test]
    fn every_place_has_its_own_name_and_can_be_changed() {
        let mut slab: Slab<u32> = Slab::default();
        assert!(slab.is_empty());
        let names: Vec<_> = (0..3).map(|n| slab.insert(10 * n)).collect();
        assert_eq!(names, [0, 1, 2].map(PacketId));
        assert_eq!((slab.len(), slab.is_empty()), (3, false));
        *slab.get_mut(names[1]) += 1;
        assert_eq!(names.iter().map(|&id| *slab.get(id)).collect::<Vec<_>>(), [0, 11, 20]);
        assert_eq!(slab.remove(names[2]), 20);
        assert_eq!(slab.len(), 2);
        // Free places are handed out, too.
        slab.places_mut().for_each(|place| *place += 1);
        assert_eq!([0, 1, 2].map(|n| *slab.get(PacketId(n))), [1, 12, 1]);
        slab.release(names[0]);
        slab.release(names[1]);
        assert!(slab.is_empty());
    }
}
