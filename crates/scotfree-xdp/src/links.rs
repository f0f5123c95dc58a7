//! Attachments of programs to ports, and pins that keep them and whatever else has a descriptor.
//!
//! Invariant: a kept attachment is taken over only if it is of the port that is meant, in the mode that is meant.

use crate::error::{attach_hint, KernelError};
use crate::interface::program_in;
use crate::kernel::{AttachMode, Port};
use libbpf_rs::libbpf_sys;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(crate) fn create_link(program: i32, port: &Port, mode: AttachMode) -> Result<OwnedFd, KernelError> {
    let flags = match mode {
        AttachMode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
        AttachMode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
    };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..libbpf_sys::bpf_link_create_opts::default()
    };
    // SAFETY: the options are whole and outlive the call; the kernel checks the numbers.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program, port.ifindex as i32, libbpf_sys::BPF_XDP, &raw const options)
    };
    owned(fd).map_err(|source| KernelError::Attach {
        interface: port.interface.clone(),
        hint: attach_hint(&source),
        source,
    })
}

pub(crate) fn link_name(interface: &str) -> String {
    format!("port-{interface}")
}

pub(crate) fn kept_links(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_link = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(link_name("").as_bytes()))
    };
    Ok(entries.filter(is_link).collect())
}

/// Takes over a kept attachment and puts `program` in its place; `None` if it cannot be taken over.
pub(crate) fn replace_link(path: &Path, program: i32, port: &Port, mode: AttachMode) -> Option<OwnedFd> {
    let link = get_pinned(path).ok()?;
    // SAFETY: both descriptors are open; without options there is nothing else to be read.
    let result = unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program, std::ptr::null()) };
    // A port of this name in another network namespace has the same link's name.
    let is_here = || program_in(port.ifindex, mode).is_ok_and(|id| id.is_some() && id == program_id(program));
    (result == 0 && is_here()).then_some(link)
}

/// Takes a program from its port and forgets that it was there; one that is gone is so already.
pub(crate) fn remove_link(path: &Path) {
    if let Ok(link) = get_pinned(path) {
        // SAFETY: the descriptor is open.
        unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    }
    let _ = std::fs::remove_file(path);
}

fn program_id(program: i32) -> Option<u32> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: the struct is whole, its length is said, and both outlive the call.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program, &raw mut info, &raw mut length) };
    (result == 0).then_some(info.id)
}

pub(crate) fn pin_descriptor(descriptor: i32, path: &Path) -> io::Result<()> {
    // SAFETY: the path ends with a zero byte and outlives the call.
    let result = unsafe { libbpf_sys::bpf_obj_pin(descriptor, c_path(path).as_ptr()) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}

pub(crate) fn get_pinned(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: the path ends with a zero byte and outlives the call.
    owned(unsafe { libbpf_sys::bpf_obj_get(c_path(path).as_ptr()) })
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call has just returned it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path has no zero byte")
}
