//! The lab's own programs in the kernel (bpf/lab/gauge.bpf.c): a reflection, a player of frames, an end of the
//! way, a server left alone.
//!
//! Invariant: only the program that was asked for is loaded, and what it counts begins at 0.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use scotfree_stage::trouble::Trouble;
use std::fs;
use std::path::Path;
use std::time::Duration;

static OBJECT: &[u8] = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/gauge.bpf.o"))).0;

/// The compiled programs, aligned as their reader wants it.
#[repr(align(16))]
struct Aligned<const N: usize>([u8; N]);

/// The largest frame that can be played, `GAUGE_FRAME_BYTES_MAX`.
const FRAME_BYTES_MAX: usize = 256;
/// `GAUGE_KINDS_MAX`.
const KINDS_MAX: usize = 32;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`: what the program redirects is really sent.
const LIVE_FRAMES: u32 = 1 << 1;
const TABLE_FRAMES: &str = "gauge_frames";
const TABLE_RUN: &str = "gauge_run";
/// How many frames the kernel plays before it sends what they became, if it is not told otherwise.
pub const BATCH: usize = 64;

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Sends requests back to where they came from.
    Reflect,
    /// Lets everything pass, at the other end of the reflection's cable.
    Pass,
    /// Plays so many frames at a time into a device's program.
    Play { frames_max: u32 },
    /// Takes what comes and counts it.
    End,
    /// Takes the updates that a device sends on, and lets all else pass.
    Take,
}

impl Part {
    const fn program(self) -> &'static str {
        match self {
            Part::Reflect => "gauge_reflect",
            Part::Pass => "gauge_pass",
            Part::Play { .. } => "gauge_play",
            Part::End => "gauge_end",
            Part::Take => "gauge_take",
        }
    }
}

/// What one of the programs has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaugeCounters {
    /// Requests sent back.
    pub reflected: u64,
    /// What the reflection dropped since it is no request.
    pub dropped: u64,
    /// Frames handed to the device's program.
    pub played: u64,
    /// Frames that passed.
    pub passed: u64,
    /// Updates with an order number that came to an end.
    pub stamped: u64,
    /// Packets that came to an end, by the code of their kind; at 0 those that are not ours.
    pub ended: [u64; KINDS_MAX],
}

/// One of the programs, loaded.
pub struct Gauge {
    object: Object,
    part: Part,
}

impl Gauge {
    /// Loads a program.
    pub fn load(part: Part) -> libbpf_rs::Result<Gauge> {
        // What libbpf would print is in the errors that it returns.
        libbpf_rs::set_print(None);
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut program in open.progs_mut() {
            let is_wanted = program.name() == part.program();
            program.set_autoload(is_wanted);
        }
        if let Part::Play { frames_max } = part {
            let frames = open.maps_mut().find(|map| map.name() == TABLE_FRAMES);
            frames.expect("the object has this table").set_max_entries(frames_max)?;
        }
        Ok(Gauge { object: open.load()?, part })
    }

    fn program(&self) -> libbpf_rs::ProgramMut<'_> {
        let program = self.object.progs_mut().find(|program| program.name() == self.part.program());
        program.expect("the object has this program")
    }

    fn table(&self, name: &str) -> libbpf_rs::Map<'_> {
        self.object.maps().find(|map| map.name() == name).expect("the object has this table")
    }

    /// Puts the program before an interface for as long as the link is held.
    pub fn attach(&self, ifindex: u32) -> libbpf_rs::Result<Link> {
        self.program().attach_xdp(ifindex as i32)
    }

    /// Puts the program in the place of another that is attached by a link kept at `path`. It stays when this
    /// value is gone.
    pub fn replace(&self, path: &Path) -> libbpf_rs::Result<()> {
        let mut link = Link::open(path)?;
        let program = self.object.progs().find(|program| program.name() == self.part.program());
        link.update_prog(&program.expect("the object has this program"))
    }

    /// What the program has seen so far, over all processors.
    pub fn counters(&self) -> libbpf_rs::Result<GaugeCounters> {
        let of_processors =
            self.table("gauge_counters").lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let of_processors = of_processors.expect("an array has its first entry");
        let count = |at: usize| of_processors.iter().map(|values| word(values, at)).sum();
        Ok(GaugeCounters {
            reflected: count(0),
            dropped: count(1),
            played: count(2),
            passed: count(3),
            stamped: count(4),
            ended: std::array::from_fn(|kind| count(5 + kind)),
        })
    }

    // ---- playing

    /// Says by which program frames are taken, by its descriptor.
    pub fn play_into(&self, program: i32) -> libbpf_rs::Result<()> {
        self.table("gauge_device").update(&0_u32.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY)
    }

    /// Plays frames, all of one size, as if they came in by an interface: all of it on this thread's processor.
    /// How long that took, from when the first was taken until one was asked for that was not there. The kernel
    /// sends what it has redirected after each [`BATCH`], so they are to be a multiple of it.
    pub fn play(&self, frames: &[Vec<u8>], ifindex: u32) -> libbpf_rs::Result<Duration> {
        assert!(!frames.is_empty() && frames.len().is_multiple_of(BATCH), "whole batches are played");
        let bytes = frames[0].len();
        self.write_frames(frames)?;
        self.write_run(&Run { next: 0, count: frames.len() as u32, begin: 0, end: 0 })?;
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let context = [0, bytes as u32, 0, ifindex, 0, 0_u32];
        let mut context: Vec<u8> = context.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&frames[0]),
            repeat: frames.len() as u32 + 1,
            flags: LIVE_FRAMES,
            ..ProgramInput::default()
        };
        self.program().test_run(input)?;
        let run = self.read_run()?;
        assert!(run.begin > 0 && run.end > run.begin, "a run that has ended says when");
        Ok(Duration::from_nanos(run.end - run.begin))
    }

    fn write_frames(&self, frames: &[Vec<u8>]) -> libbpf_rs::Result<()> {
        let places: Vec<u8> = (0..frames.len() as u32).flat_map(u32::to_ne_bytes).collect();
        let mut rooms = vec![0; frames.len() * FRAME_BYTES_MAX];
        for (room, frame) in rooms.chunks_exact_mut(FRAME_BYTES_MAX).zip(frames) {
            assert_eq!(frame.len(), frames[0].len(), "all frames of a run have one size");
            room[..frame.len()].copy_from_slice(frame);
        }
        let count = frames.len() as u32;
        self.table(TABLE_FRAMES).update_batch(&places, &rooms, count, MapFlags::ANY, MapFlags::ANY)
    }

    fn write_run(&self, run: &Run) -> libbpf_rs::Result<()> {
        let mut value = Vec::new();
        value.extend_from_slice(&run.next.to_ne_bytes());
        value.extend_from_slice(&run.count.to_ne_bytes());
        value.extend_from_slice(&run.begin.to_ne_bytes());
        value.extend_from_slice(&run.end.to_ne_bytes());
        self.table(TABLE_RUN).update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)
    }

    fn read_run(&self) -> libbpf_rs::Result<Run> {
        let value = self.table(TABLE_RUN).lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.expect("an array has its first entry");
        let places = word(&value, 0);
        Ok(Run {
            next: places as u32,
            count: (places >> 32) as u32,
            begin: word(&value, 1),
            end: word(&value, 2),
        })
    }
}

/// How far a run has come, `struct gauge_run`.
struct Run {
    next: u32,
    count: u32,
    begin: u64,
    end: u64,
}

/// The number of an interface of this thread's namespace.
pub fn interface_number(name: &str) -> Result<u32, Trouble> {
    let file = Path::new("/sys/class/net").join(name).join("ifindex");
    let text = fs::read_to_string(&file).map_err(|error| Trouble::file("read", &file, &error))?;
    text.trim().parse().map_err(|error| {
        Trouble::new(format!("read {}", file.display()), error, "see whether /sys is this namespace's")
    })
}

fn word(values: &[u8], at: usize) -> u64 {
    let bytes = values[at * 8..at * 8 + 8].try_into().expect("8 bytes");
    u64::from_ne_bytes(bytes)
}
