//! On which processors a thread runs.
//!
//! Invariant: a thread is only ever bound to a processor that it may use.

use super::check;
use std::io;
use std::mem;

/// Keeps the calling thread, and those that it starts from here on, on the first processor that it may use.
pub fn stay_on_first() -> io::Result<()> {
    let allowed = allowed()?;
    let is_allowed = |processor: &usize| {
        // SAFETY: `CPU_SETSIZE` bounds the bits that the set has.
        unsafe { libc::CPU_ISSET(*processor, &allowed) }
    };
    let first = (0..libc::CPU_SETSIZE as usize).find(is_allowed);
    stay_on(first.ok_or_else(|| io::Error::other("this thread may use no processor"))?)
}

/// Keeps the calling thread, and those that it starts from here on, on this processor; an error if it may not use it.
pub fn stay_on(processor: usize) -> io::Result<()> {
    if processor >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::other(format!("there is no processor {processor}")));
    }
    let mut only = empty();
    // SAFETY: `processor` is below `CPU_SETSIZE`.
    unsafe { libc::CPU_SET(processor, &mut only) };
    allow(&only)
}

/// Of a process that runs with a real-time priority, the calling thread goes before the others from now on, if it may:
/// whoever all of them wait for, and who has little to do, should not wait for a processor behind them. Other processes
/// are scheduled so anyway.
pub fn go_first() -> io::Result<()> {
    // SAFETY: 0 is the calling thread.
    let policy = check(unsafe { libc::sched_getscheduler(0) })?;
    if !matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR) {
        return Ok(());
    }
    let mut priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: `priority` is there to be written.
    check(unsafe { libc::sched_getparam(0, &raw mut priority) })?;
    // SAFETY: it takes and returns numbers.
    let most = check(unsafe { libc::sched_get_priority_max(policy) })?;
    priority.sched_priority = (priority.sched_priority + 1).min(most);
    // SAFETY: `priority` is only read.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const priority) }).map(drop)
}

/// A processor that a thread stays on at some times, and at others is free again.
pub struct Home {
    processor: usize,
    elsewhere: libc::cpu_set_t,
    is_there: bool,
}

impl Home {
    /// For the calling thread, which is free now.
    pub fn new(processor: usize) -> io::Result<Home> {
        Ok(Home { processor, elsewhere: allowed()?, is_there: false })
    }

    /// Stays there from now on, or is free. Where it may not be there it stays free.
    pub fn stay(&mut self, stays: bool) {
        if stays == self.is_there {
            return;
        }
        self.is_there = stays;
        let _ = if stays { stay_on(self.processor) } else { allow(&self.elsewhere) };
    }
}

fn allow(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: size and pointer describe `set`, which is read alone; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(set), &raw const *set) }).map(drop)
}

fn allowed() -> io::Result<libc::cpu_set_t> {
    let mut set = empty();
    // SAFETY: size and pointer describe `set`; 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) })?;
    Ok(set)
}

fn empty() -> libc::cpu_set_t {
    // SAFETY: a set is an array of bits; all of them 0 is the empty one.
    unsafe { mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_thread_comes_home_and_leaves_again() {
        thread::spawn(|| {
            let before = thread::available_parallelism().expect("it is known");
            let mut home = Home::new(0).expect("its processors are known");
            home.stay(true);
            assert_eq!(thread::available_parallelism().expect("it is known").get(), 1);
            home.stay(false);
            assert_eq!(thread::available_parallelism().expect("it is known"), before);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn without_a_real_time_priority_nobody_goes_first() {
        let policy = || {
            // SAFETY: 0 is the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        };
        thread::spawn(move || {
            let before = policy();
            // Under a real-time priority it may be refused, and nothing has changed either.
            let _ = go_first();
            assert_eq!(policy(), before);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        assert!(stay_on(1 << 20).is_err());
    }

    #[test]
    fn a_thread_that_stays_has_one_processor_and_others_keep_theirs() {
        let before = thread::available_parallelism().expect("it is known");
        thread::spawn(|| {
            stay_on_first().expect("it may use one");
            assert_eq!(thread::available_parallelism().expect("it is known").get(), 1);
        })
        .join()
        .expect("no panic");
        assert_eq!(thread::available_parallelism().expect("it is known"), before);
    }
}
