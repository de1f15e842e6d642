//! The packets that share a context.

use super::Gather;

/// The packets that share a context: what is compressed may refer to those of them that went before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// None: each batch is decoded alone.
    Off,
    /// Those of one flow: the same addresses, protocol and ports.
    Flow,
    /// Those to one service: the same destination address, destination port and protocol.
    Service,
    /// Those from one host to another.
    HostPair,
    /// All that go over one link in one direction.
    Peer,
    /// Those from one host to another, but for long transfers beside each other, of which each has its
    /// own if it gains from that.
    Auto,
}

impl History {
    /// Every fixed scope, from the narrowest to the widest.
    pub const ALL: [Self; 5] = [Self::Off, Self::Flow, Self::Service, Self::HostPair, Self::Peer];

    /// Returns its name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Flow => "flow",
            Self::Service => "service",
            Self::HostPair => "host-pair",
            Self::Peer => "peer",
            Self::Auto => "auto",
        }
    }

    /// Returns the names of all, the usual one first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(Self::Auto).chain(Self::ALL).map(Self::name)
    }

    /// Returns the scope of this name.
    pub fn named(name: &str) -> Option<Self> {
        std::iter::once(Self::Auto).chain(Self::ALL).find(|history| history.name() == name)
    }

    /// Returns the axis by which packets are compressed together that share a context, if any do.
    pub const fn gather(self) -> Option<Gather> {
        match self {
            Self::Off => None,
            Self::Flow => Some(Gather::Flow),
            Self::Service => Some(Gather::Service),
            Self::HostPair | Self::Auto => Some(Gather::HostPair),
            Self::Peer => Some(Gather::Edge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_a_name_of_its_own() {
        assert_eq!(History::ALL.map(|one| History::named(one.name())), History::ALL.map(Some));
        assert_eq!(History::named("auto"), Some(History::Auto));
        assert_eq!(History::names().count(), 6);
        assert_eq!(History::named("hostpair"), None);
        let off = History::ALL.map(|one| one.gather().is_none());
        assert_eq!(off, [true, false, false, false, false]);
    }
}
