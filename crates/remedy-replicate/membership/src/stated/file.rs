//! What an operator does to a membership's file by command.
//!
//! Invariant: the file holds a whole view at every moment, and each that is written has a larger epoch than the one
//! before. No command overwrites what it did not read.

use crate::form::{Listed, ViewForm};
use crate::Done;
use remedy_replicate::{Member, MemberId, Standing, View};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;

/// The view that the file states.
pub fn view(path: &Path) -> Result<View, String> {
    let place = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{place}: {error}"))?;
    let form: ViewForm = toml::from_str(&text).map_err(|error| format!("{place}: {error}"))?;
    form.view().map_err(|reason| format!("{place}: {reason}"))
}

/// Writes the first view, in which all listed members have the state: an empty one. A file that is there stays.
pub fn init(path: &Path, listed: &[Listed]) -> Result<Done, String> {
    Listed::check(listed)?;
    let first = View { epoch: 1, founded: 1, members: listed.iter().map(Member::from).collect() };
    let place = path.display();
    match File::create_new(path) {
        Ok(mut file) => file
            .write_all(text_of(&first).as_bytes())
            .and_then(|()| file.sync_all())
            .map(|()| Done::Now)
            .map_err(|error| format!("{place}: {error}")),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && view(path)? == first => Ok(Done::Before),
        Err(error) => Err(format!("{place}: {error}; nothing was changed")),
    }
}

/// Writes the next view, in which a member joins: one that was started again, or a new one at its addresses.
pub fn add(path: &Path, id: MemberId, at: Option<(SocketAddr, SocketAddr)>) -> Result<(Done, View), String> {
    let view = view(path)?;
    let known = view.member(id).copied();
    let place = at.or(known.map(|known| (known.peers, known.clients)));
    let place = place.ok_or_else(|| {
        format!("{}: member {id} is not in it: say where it is: --at {id}=PEERS,CLIENTS", path.display())
    })?;
    let joiner = member(id, place, Standing::Joining);
    if known == Some(joiner) {
        return Ok((Done::Before, view));
    }
    let mut members = others(&view, id);
    members.push(joiner);
    write_next(path, &view, members)
}

/// Writes the next view, in which a member that was joining has the state.
pub fn make_full(path: &Path, id: MemberId) -> Result<(Done, View), String> {
    let view = view(path)?;
    let known = view.member(id).copied();
    let known = known.ok_or_else(|| format!("{}: member {id} is not in it", path.display()))?;
    if known.standing == Standing::Full {
        return Ok((Done::Before, view));
    }
    let mut members = others(&view, id);
    let full = members.iter().filter(|member| member.standing == Standing::Full).count();
    members.insert(full, Member { standing: Standing::Full, ..known });
    write_next(path, &view, members)
}

/// Writes the next view, without a member.
pub fn leave_out(path: &Path, id: MemberId) -> Result<(Done, View), String> {
    let view = view(path)?;
    if view.member(id).is_none() {
        return Ok((Done::Before, view));
    }
    let members = others(&view, id);
    write_next(path, &view, members)
}

fn member(id: MemberId, (peers, clients): (SocketAddr, SocketAddr), standing: Standing) -> Member {
    Member { id, boot: 0, peers, clients, standing }
}

fn others(view: &View, id: MemberId) -> Vec<Member> {
    view.members.iter().filter(|member| member.id != id).copied().collect()
}

fn write_next(path: &Path, view: &View, members: Vec<Member>) -> Result<(Done, View), String> {
    let next = View { epoch: view.epoch + 1, founded: view.founded, members };
    let place = path.display();
    next.check().map_err(|reason| format!("{place}: without a change, since {reason}"))?;
    replace(path, &next).map_err(|error| format!("{place}: {error}"))?;
    Ok((Done::Now, next))
}

/// A reader finds the old file or the new one, and so does one after a loss of power.
fn replace(path: &Path, view: &View) -> std::io::Result<()> {
    let head = std::fs::read_to_string(path)?;
    let remarks = head.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
    let text = remarks.collect::<String>() + &text_of(view);
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.set_permissions(std::fs::metadata(path)?.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn text_of(view: &View) -> String {
    let mut text = format!("epoch = {}\nfounded = {}\n", view.epoch, view.founded);
    for Member { id, boot, peers, clients, standing } in &view.members {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n[[member]]\nid = {id}\npeers = \"{peers}\"\nclients = \"{clients}\"\n");
        let _ = writeln!(text, "standing = \"{}\"", standing.name());
        if *boot != 0 {
            let _ = writeln!(text, "boot = {boot}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn listed(id: u8) -> Listed {
        let at = |port| SocketAddr::from(([10, 0, 0, id], port));
        Listed { id, peers: at(7_000), clients: at(6_379) }
    }

    fn standings(view: &View) -> Vec<(u8, Standing)> {
        view.members.iter().map(|member| (member.id.0, member.standing)).collect()
    }

    #[test]
    fn a_member_leaves_joins_and_has_the_state_one_epoch_after_the_other() {
        use Standing::{Full, Joining};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.toml");
        assert_eq!(init(&path, &[1, 2, 3].map(listed)), Ok(Done::Now));
        assert_eq!(init(&path, &[1, 2, 3].map(listed)), Ok(Done::Before));
        let refused = init(&path, &[1, 2].map(listed)).unwrap_err();
        assert!(refused.contains("nothing was changed"), "{refused}");

        for done in [Done::Now, Done::Before] {
            let (was, next) = leave_out(&path, MemberId(1)).unwrap();
            assert_eq!((was, next.epoch, standings(&next)), (done, 2, vec![(2, Full), (3, Full)]));
        }
        let unknown = add(&path, MemberId(1), None).unwrap_err();
        assert!(unknown.contains("--at"), "{unknown}");
        let place = Some((listed(1).peers, listed(1).clients));
        for (done, at) in [(Done::Now, place), (Done::Before, None)] {
            let (was, next) = add(&path, MemberId(1), at).unwrap();
            assert_eq!((was, next.epoch), (done, 3));
            assert_eq!(standings(&next), [(2, Full), (3, Full), (1, Joining)]);
        }
        // One that was full, and was started again.
        let (_, next) = add(&path, MemberId(2), None).unwrap();
        assert_eq!((next.epoch, standings(&next)), (4, vec![(3, Full), (1, Joining), (2, Joining)]));
        for done in [Done::Now, Done::Before] {
            let (was, next) = make_full(&path, MemberId(2)).unwrap();
            assert_eq!((was, next.epoch), (done, 5));
            assert_eq!(standings(&next), [(3, Full), (2, Full), (1, Joining)]);
            assert_eq!(view(&path).unwrap(), next);
        }
    }

    #[test]
    fn what_would_be_no_view_is_not_written_and_remarks_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.toml");
        init(&path, &[1, 2].map(listed)).unwrap();
        let text = format!("# The group of the shop.\n{}", std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, &text).unwrap();
        leave_out(&path, MemberId(2)).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("# The group of the shop.\nepoch = 2\n"));
        for refused in [leave_out(&path, MemberId(1)), add(&path, MemberId(1), None)] {
            let reason = refused.unwrap_err();
            assert!(reason.contains("members.toml"), "{reason}");
        }
        assert_eq!(view(&path).unwrap().epoch, 2);
    }
}
