//! Opening, binding and configuring sockets, and asking about interfaces.
//!
//! Invariant: every socket made here is nonblocking and closed on exec.

use super::address::RawAddress;
use super::check;
use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A nonblocking datagram socket of the family of `address`.
pub fn open_udp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    open(family, libc::SOCK_DGRAM)
}

/// A nonblocking raw packet socket that receives nothing until it is bound.
pub fn open_packet() -> io::Result<OwnedFd> {
    open(libc::AF_PACKET, libc::SOCK_RAW)
}

/// A socket that is only there to ask the kernel about interfaces.
pub fn open_control() -> io::Result<OwnedFd> {
    open(libc::AF_INET, libc::SOCK_DGRAM)
}

fn open(family: i32, kind: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    let fd = check(fd)?;
    // SAFETY: the kernel has just made `fd` for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds `fd` to `address`.
pub fn bind(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::encode(address);
    let bytes = raw.as_bytes();
    // SAFETY: pointer and length describe `raw`, which lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len() as u32) }).map(drop)
}

/// Makes `address` the peer of `fd`.
pub fn connect(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::encode(address);
    let bytes = raw.as_bytes();
    // SAFETY: pointer and length describe `raw`, which lives through the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len() as u32) }).map(drop)
}

/// The address that `fd` is bound to.
pub fn local_address(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::default();
    let room = raw.room();
    let mut length = room.len() as u32;
    // SAFETY: pointer and length describe `room`, which lives through the call.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), room.as_mut_ptr().cast(), &raw mut length) })?;
    raw.set_length(length);
    raw.decode().ok_or_else(|| io::Error::other("the socket has an address of a foreign family"))
}

/// Makes calls on `fd` return instead of waiting.
pub fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let mut on: libc::c_int = 1;
    // SAFETY: FIONBIO reads one integer, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &raw mut on) }).map(drop)
}

/// Sets an integer option.
pub fn set_option(fd: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<i32>() as u32)
    };
    check(result).map(drop)
}

/// Asks for kernel buffers of `bytes` each way. Only a privileged process may exceed the system's
/// limits (`net.core.rmem_max`), so a refusal of that falls back to what everyone may have.
pub fn set_buffers(fd: &OwnedFd, receive_bytes: usize, send_bytes: usize) -> io::Result<()> {
    for (bytes, forced, plain) in [
        (receive_bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (send_bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        set_option(fd, libc::SOL_SOCKET, forced, bytes)
            .or_else(|_| set_option(fd, libc::SOL_SOCKET, plain, bytes))?;
    }
    Ok(())
}

/// The index of the interface called `name` in this network namespace.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: `name` is a live string that ends in zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(index)
}

/// Binds a packet socket to every protocol of one interface.
pub fn bind_packet(fd: &OwnedFd, interface: u32) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain data, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface as i32;
    // SAFETY: pointer and length describe `address`, which lives through the call.
    let result = unsafe {
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32)
    };
    check(result).map(drop)
}

/// Lets the interface hand up frames for every destination while `fd` is open.
pub fn join_promiscuous(fd: &OwnedFd, interface: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: pointer and length describe `request`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of::<libc::packet_mreq>() as u32,
        )
    };
    check(result).map(drop)
}

/// How many frames the kernel has dropped on a packet socket since the last question.
pub fn packet_drops(fd: &OwnedFd) -> io::Result<u64> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as u32;
    // SAFETY: pointer and length describe `statistics`, which lives through the call.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    };
    check(result)?;
    Ok(u64::from(statistics.tp_drops))
}

/// The hardware address of an Ethernet interface.
pub fn hardware_address(fd: &OwnedFd, name: &str) -> io::Result<[u8; 6]> {
    let request = interface_request(fd.as_raw_fd(), name, libc::SIOCGIFHWADDR)?;
    // SAFETY: SIOCGIFHWADDR has filled this member of the union; any bytes are valid in it.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the interface is not an Ethernet interface"));
    }
    let mut out = [0; 6];
    for (byte, raw) in out.iter_mut().zip(address.sa_data) {
        *byte = raw as u8;
    }
    Ok(out)
}

/// The largest payload of an Ethernet frame on an interface.
pub fn interface_mtu(fd: &OwnedFd, name: &str) -> io::Result<usize> {
    let request = interface_request(fd.as_raw_fd(), name, libc::SIOCGIFMTU)?;
    // SAFETY: SIOCGIFMTU has filled this member of the union; any bytes are valid in it.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as usize)
}

/// An interface's name as the kernel takes it: with zeros behind it.
pub fn interface_name(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut out = [0; libc::IFNAMSIZ];
    if name.len() >= out.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (place, byte) in out.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(out)
}

fn interface_request(fd: RawFd, name: &str, question: libc::c_ulong) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = interface_name(name)?;
    // SAFETY: both questions asked here read and write one ifreq, which lives through the call.
    check(unsafe { libc::ioctl(fd, question as _, &raw mut request) })?;
    Ok(request)
}
