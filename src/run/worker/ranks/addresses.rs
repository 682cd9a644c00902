//! Where this host can be reached.

use std::net::IpAddr;

/// The addresses of this host, loopback last.
pub(crate) fn own() -> Vec<IpAddr> {
    let mut addrs: Vec<IpAddr> = nix::ifaddrs::getifaddrs()
        .map(|all| {
            all.filter_map(|interface| {
                let address = interface.address?;
                if let Some(v4) = address.as_sockaddr_in() {
                    return Some(IpAddr::V4(v4.ip()));
                }
                let v6 = address.as_sockaddr_in6()?.ip();
                // Link-local addresses need an interface to be of use.
                (v6.segments()[0] & 0xffc0 != 0xfe80).then_some(IpAddr::V6(v6))
            })
            .collect()
        })
        .unwrap_or_default();
    addrs.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6(), *ip));
    addrs.dedup();
    addrs
}
