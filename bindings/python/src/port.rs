//! The decision core, step by step.

use dwell_base::{Instant, Rate};
use dwell_policy::{
    Action, ClassKey, Estimate, Estimates, Event, FrameCost, JobId, LearnedConfig, LinkState,
    Outcome, Packet, PacketId, PortConfig, QueueLimit, Ratio, Scheme,
};
use dwell_trace::replay::class::parse_class_key;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{Error, failed};

/// The decision core of one output port: what a relay, the simulator and replays decide with.
///
/// It does nothing by itself: tell it what happens, and ask it what to do until it says nothing.
#[pyclass(module = "dwell")]
pub(crate) struct Port {
    port: dwell_policy::Port,
    /// The job under way.
    job: Option<JobId>,
}

/// A job for the compressor.
#[pyclass(frozen, get_all, name = "Compress", module = "dwell")]
#[derive(Clone)]
pub(crate) struct CompressJob {
    /// Its name, for `compressed`.
    job: u64,
    /// The packets to compress together, by their names.
    packets: Vec<u32>,
    /// Their bytes.
    bytes: u32,
    /// How long it is expected to take.
    cost_ns: u64,
    /// The group whose context it belongs to; none if it refers to nothing.
    context: Option<u64>,
}

/// A frame to send.
#[pyclass(frozen, get_all, name = "Send", module = "dwell")]
#[derive(Clone)]
pub(crate) struct SendFrame {
    /// The packets in it, by their names, each unit a list: several were compressed together.
    units: Vec<Vec<u32>>,
    /// The bytes of each unit as it is sent.
    unit_bytes: Vec<u32>,
    /// Whether each unit was compressed here.
    are_compressed: Vec<bool>,
    /// The time that each unit was in the port.
    sojourn_ns: Vec<u64>,
    /// What the frame costs on the link.
    link_bytes: u64,
    /// Why it goes now: "ready", "full" or "timer".
    cause: String,
}

/// A packet to forget.
#[pyclass(frozen, get_all, name = "Drop", module = "dwell")]
#[derive(Clone)]
pub(crate) struct DropPacket {
    /// Its name.
    packet: u32,
    /// Why.
    reason: String,
}

/// A packet to mark as one that met congestion.
#[pyclass(frozen, get_all, name = "Mark", module = "dwell")]
#[derive(Clone)]
pub(crate) struct MarkPacket {
    /// Its name.
    packet: u32,
}

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn class(name: Option<&str>) -> PyResult<ClassKey> {
    name.map_or(Ok(ClassKey::default()), |name| parse_class_key(name).map_err(wrong))
}

#[pymethods]
impl Port {
    /// Makes an empty port whose link is idle.
    ///
    /// With `ratio` and `time_ns` every unit is expected to become so small in that time, as in the papers;
    /// without them both are learned, as in relays.
    #[new]
    #[pyo3(signature = (
        scheme="auto", *, rate=None, ratio=None, time_ns=None, queue_packets=None, queue_bytes=None,
        compress_min=0, exceptions=Vec::new(),
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes the list")]
    fn new(
        scheme: &str,
        rate: Option<&str>,
        ratio: Option<f64>,
        time_ns: Option<u64>,
        queue_packets: Option<u32>,
        queue_bytes: Option<u64>,
        compress_min: u32,
        exceptions: Vec<String>,
    ) -> PyResult<Self> {
        let scheme = Scheme::preset(scheme).map_err(wrong)?;
        let rate = rate.map(str::parse::<Rate>).transpose().map_err(wrong)?;
        let limit = match (queue_packets, queue_bytes) {
            (None, None) => QueueLimit::default(),
            (packets, bytes) => QueueLimit {
                bytes: bytes.unwrap_or(u64::MAX),
                ..QueueLimit::packets(packets.unwrap_or(u32::MAX))
            },
        };
        let exceptions = exceptions.iter().map(|name| class(Some(name)));
        let takes_several = FrameCost { units_max: u32::MAX, ..FrameCost::FREE_CHUNKS };
        let is_filled = !matches!(scheme.release, dwell_policy::Release::Now(_));
        let config = PortConfig {
            scheme,
            rate,
            limit,
            frame: if is_filled { takes_several } else { FrameCost::FREE },
            estimates: estimates(ratio, time_ns)?,
            compress_bytes_min: compress_min,
            exceptions: exceptions.collect::<PyResult<_>>()?,
            ..PortConfig::default()
        };
        let mut port = dwell_policy::Port::new(config).map_err(wrong)?;
        port.handle(Instant::ZERO, Event::Link(LinkState::of_rate(rate)));
        Ok(Self { port, job: None })
    }

    /// Says that a packet arrived. `packet` is your name for it.
    ///
    /// Flows and groups are numbers; packets of a flow must be of one group. Without them each packet is a flow
    /// of its own.
    #[pyo3(signature = (
        now_ns, packet, bytes, *, source=None, destination=None, flow=None, group=None, max_wait_ns=0,
        looks_random=false, compressed=false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn arrive(
        &mut self,
        now_ns: u64,
        packet: u32,
        bytes: u32,
        source: Option<&str>,
        destination: Option<&str>,
        flow: Option<u64>,
        group: Option<u64>,
        max_wait_ns: u64,
        looks_random: bool,
        compressed: bool,
    ) -> PyResult<()> {
        if bytes == 0 {
            return Err(PyValueError::new_err("a packet has at least one byte"));
        }
        let classes = (class(source)?, class(destination)?);
        let arriving = Packet::new(PacketId(packet), bytes, classes);
        let flow = flow.unwrap_or(arriving.flow);
        let arriving = Packet {
            flow,
            group: group.unwrap_or(flow),
            max_wait_ns,
            looks_random,
            compressed,
            ..arriving
        };
        self.port.handle(Instant::from_ns(now_ns), Event::Arrive(arriving));
        Ok(())
    }

    /// Says that a job came out of the compressor: with this many bytes, or none if it did not become smaller.
    #[pyo3(signature = (now_ns, job, bytes, took_ns))]
    fn compressed(
        &mut self,
        now_ns: u64,
        job: u64,
        bytes: Option<u32>,
        took_ns: u64,
    ) -> PyResult<()> {
        if bytes == Some(0) {
            return Err(PyValueError::new_err(
                "no frame has 0 bytes: None says that it is not smaller",
            ));
        }
        // To the core this would be a bug of its driver.
        if self.job.take_if(|under_way| under_way.0 == job).is_none() {
            return Err(Error::new_err(format!("job {job} is not under way")));
        }
        let outcome = bytes.map_or(Outcome::NotSmaller, Outcome::Smaller);
        let event = Event::Compressed { job: JobId(job), outcome, took_ns };
        self.port.handle(Instant::from_ns(now_ns), event);
        Ok(())
    }

    /// Says that the link can take a frame.
    fn link_ready(&mut self, now_ns: u64) {
        self.port.handle(Instant::from_ns(now_ns), Event::LinkReady);
    }

    /// Says that the link can take no frame.
    fn link_busy(&mut self, now_ns: u64) {
        self.port.handle(Instant::from_ns(now_ns), Event::LinkBusy);
    }

    /// Says what is known of the link: its rate, and the bytes that it has been given and not sent yet.
    #[pyo3(signature = (now_ns, rate, *, ahead_bytes=0))]
    fn link(&mut self, now_ns: u64, rate: Option<&str>, ahead_bytes: u64) -> PyResult<()> {
        let rate = rate.map(str::parse::<Rate>).transpose().map_err(wrong)?;
        let state = LinkState { ahead_bytes, ..LinkState::of_rate(rate) };
        self.port.handle(Instant::from_ns(now_ns), Event::Link(state));
        Ok(())
    }

    /// Returns the next thing to do: a `Compress`, `Send`, `Drop` or `Mark`; none if there is nothing.
    fn poll<'py>(&mut self, py: Python<'py>, now_ns: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(action) = self.port.poll(Instant::from_ns(now_ns)) else { return Ok(None) };
        let action = match action {
            Action::Compress(job) => {
                self.job = Some(job.id);
                let packets = self.port.batch(job.id).iter().map(|id| id.0).collect();
                let (bytes, cost_ns, context) = (job.bytes, job.cost_ns, job.context);
                let job = CompressJob { job: job.id.0, packets, bytes, cost_ns, context };
                job.into_pyobject(py)?.into_any()
            }
            Action::Send => self.frame().into_pyobject(py)?.into_any(),
            Action::Drop(id, reason) => {
                let reason = format!("{reason:?}");
                DropPacket { packet: id.0, reason }.into_pyobject(py)?.into_any()
            }
            Action::Mark(id) => MarkPacket { packet: id.0 }.into_pyobject(py)?.into_any(),
        };
        Ok(Some(action))
    }

    /// When to ask again though nothing happened; none if there is no such time.
    #[getter]
    fn next_deadline_ns(&self) -> Option<u64> {
        self.port.next_deadline().map(Instant::as_ns)
    }

    /// The accounts, in JSON.
    fn accounts_json(&self) -> PyResult<String> {
        serde_json::to_string(self.port.accounts()).map_err(failed)
    }
}

impl Port {
    fn frame(&self) -> SendFrame {
        let frame = self.port.frame();
        let mut followers = frame.followers.iter().map(|packet| packet.id.0);
        let units = frame.units.iter().map(|unit| {
            let rest = followers.by_ref().take(unit.followers as usize);
            std::iter::once(unit.id.0).chain(rest).collect()
        });
        SendFrame {
            units: units.collect(),
            unit_bytes: frame.units.iter().map(|unit| unit.bytes).collect(),
            are_compressed: frame.units.iter().map(|unit| unit.compressed_here).collect(),
            sojourn_ns: frame.units.iter().map(|unit| unit.sojourn_ns).collect(),
            link_bytes: frame.link_bytes,
            cause: format!("{:?}", frame.cause).to_lowercase(),
        }
    }
}

fn estimates(ratio: Option<f64>, time_ns: Option<u64>) -> PyResult<Estimates> {
    match (ratio, time_ns) {
        (None, None) => Ok(Estimates::Learned(LearnedConfig::default())),
        (Some(ratio), Some(cost_ns)) if (1e-6..=1.0).contains(&ratio) => {
            let ratio = Ratio::from_ppm((ratio * 1e6).round() as u32);
            Ok(Estimates::Fixed(Estimate { ratio, cost_ns }))
        }
        (Some(_), Some(_)) => Err(PyValueError::new_err("a ratio is a number from 0.000001 to 1")),
        _ => Err(PyValueError::new_err("ratio and time_ns go together")),
    }
}

/// Adds the classes to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Port>()?;
    module.add_class::<CompressJob>()?;
    module.add_class::<SendFrame>()?;
    module.add_class::<DropPacket>()?;
    module.add_class::<MarkPacket>()
}
