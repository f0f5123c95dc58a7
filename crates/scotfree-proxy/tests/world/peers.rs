//! Peers in the simulated world: links that carry messages in order until they are cut, memories that are lost with
//! their process, and the proxy's durable list of those it relies on.

use scotfree_core::{SeqNum, SessionId};
use scotfree_proxy::peers::{Copies, FromKeeper, Incarnation, Keeper, KeeperConfig, LogName, ToKeeper};
use scotfree_proxy::{CommitQueue, Fault};
use scotfree_sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NAME: LogName = [9; 16];

/// Messages under way between the proxy and a peer.
#[derive(Debug, Default)]
struct Link {
    is_up: bool,
    /// The proxy has heard what the peer holds.
    is_attached: bool,
    connection: u64,
    there: VecDeque<Vec<u8>>,
    back: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
pub struct Peers {
    keepers: Vec<(Incarnation, Keeper)>,
    links: Vec<Link>,
    copies: Copies,
    fault: Option<Fault>,
    epoch: u32,
    /// What the proxy finds again after a crash.
    list: BTreeSet<Incarnation>,
    /// Sessions that may be forgotten when records up to these places are found no more.
    ended: VecDeque<(SeqNum, SessionId)>,
    begun: u64,
}

impl Peers {
    pub fn new(count: usize, fault: Option<Fault>) -> Peers {
        let mut peers = Peers {
            keepers: Vec::new(),
            links: (0..count).map(|_| Link::default()).collect(),
            copies: Copies::new(count, 1, fault),
            fault,
            epoch: 1,
            list: BTreeSet::new(),
            ended: VecDeque::new(),
            begun: 0,
        };
        peers.keepers = (0..count).map(|_| peers.new_keeper()).collect();
        peers
    }

    fn new_keeper(&mut self) -> (Incarnation, Keeper) {
        self.begun += 1;
        (u128::from(self.begun).to_le_bytes(), Keeper::new(KeeperConfig::default()))
    }

    /// The peers from whom a restart can learn what it needs.
    fn sources(&self) -> Vec<usize> {
        (0..self.keepers.len()).filter(|index| self.list.contains(&self.keepers[*index].0)).collect()
    }

    /// Whether the proxy may crash: nobody protects from the loss of all copies.
    pub fn can_restart(&self) -> bool {
        self.list.is_empty() || !self.sources().is_empty()
    }

    // ---- what the proxy does

    pub fn record(&mut self, queue: &mut CommitQueue) {
        let Some((last, record)) = queue.next_record() else { return };
        self.copies.append(last, record, &mut |index, message| send(&mut self.links, index, message));
        queue.record_taken();
    }

    pub fn trim(&mut self, queue: &mut CommitQueue) -> Vec<SessionId> {
        while let Some(last) = queue.next_trim() {
            self.copies.trim(last, &mut |index, message| send(&mut self.links, index, message));
        }
        if let Some(session) = queue.next_ended() {
            self.ended.push_back((self.copies.trim_sent(), session));
        }
        let trimmed = self.copies.trimmed();
        let count = self.ended.iter().take_while(|(through, _)| *through <= trimmed).count();
        self.ended.drain(..count).map(|(_, session)| session).collect()
    }

    /// One message arrives, a connection is made, or the list is written.
    pub fn step(&mut self, queue: &mut CommitQueue, rng: &mut Rng) {
        let index = rng.below(self.links.len() as u64) as usize;
        match rng.below(5) {
            _ if !self.links[index].is_up => self.connect(index),
            0 | 1 => self.deliver_there(index),
            2 | 3 => self.deliver_back(index, queue),
            _ => self.write_list(queue),
        }
        if let Some(logged) = self.copies.logged() {
            queue.on_logged(logged);
        }
    }

    pub fn write_list(&mut self, queue: &CommitQueue) {
        if let Some(list) = self.copies.wanted_list(queue.stable()) {
            self.list.clone_from(&list);
            self.copies.listed(&list);
        }
    }

    fn connect(&mut self, index: usize) {
        self.begun += 1;
        let held = self.keepers[index].1.held(&NAME);
        self.links[index] = Link { is_up: true, connection: self.begun, ..Link::default() };
        say(&mut self.links[index], &FromKeeper::State(held));
    }

    fn deliver_there(&mut self, index: usize) {
        let Some(bytes) = self.links[index].there.pop_front() else { return };
        let message = ToKeeper::read(&bytes).expect("as it was written");
        let (link, keeper) = (&mut self.links[index], &mut self.keepers[index].1);
        keeper.take(&NAME, link.connection, &message, &mut |said| {
            assert!(!matches!(said, FromKeeper::Refused(_)), "{said:?}");
            let mut bytes = Vec::new();
            said.write(&mut bytes);
            link.back.push_back(bytes);
        });
        let held = keeper.held(&NAME).expect("it was begun");
        say(link, &FromKeeper::Stored(held.stored, held.trimmed));
    }

    fn deliver_back(&mut self, index: usize, queue: &CommitQueue) {
        let Some(bytes) = self.links[index].back.pop_front() else { return };
        let incarnation = self.keepers[index].0;
        match FromKeeper::read(&bytes).expect("as it was written") {
            FromKeeper::State(held) if !self.links[index].is_attached => {
                self.links[index].is_attached = true;
                let links = &mut self.links;
                self.copies.attach(index, incarnation, held, queue, &mut |index, message| {
                    send(links, index, message);
                });
            }
            FromKeeper::State(held) => self.copies.on_state(index, held.expect("it was begun")),
            FromKeeper::Stored(stored, trimmed) => self.copies.on_stored(index, stored, trimmed),
            other => panic!("{other:?}"),
        }
    }

    // ---- what goes wrong

    /// A link is cut, or a peer's process ends.
    pub fn fail(&mut self, rng: &mut Rng) {
        let index = rng.below(self.links.len() as u64) as usize;
        if rng.below(2) == 0 && self.sources().iter().any(|source| *source != index) || self.list.is_empty() {
            self.keepers[index] = self.new_keeper();
            self.links[index].there.clear();
        }
        self.cut(index, rng);
        self.copies.lose(index);
    }

    /// Of what was under way to the peer, a beginning arrives.
    fn cut(&mut self, index: usize, rng: &mut Rng) {
        for _ in 0..rng.below(self.links[index].there.len() as u64 + 1) {
            self.deliver_there(index);
        }
        self.links[index] = Link::default();
    }

    /// The proxy is lost: what one that it relied on gives back.
    pub fn restart(&mut self, rng: &mut Rng) -> BTreeMap<u64, Vec<u8>> {
        for index in 0..self.links.len() {
            self.cut(index, rng);
        }
        self.epoch += 1;
        self.copies = Copies::new(self.links.len(), self.epoch, self.fault);
        self.ended.clear();
        let sources = self.sources();
        let mut records = BTreeMap::new();
        if !sources.is_empty() {
            let source = sources[rng.below(sources.len() as u64) as usize];
            self.keepers[source].1.take(&NAME, 0, &ToKeeper::Read, &mut |said| {
                if let FromKeeper::Record(record) = said {
                    records.insert(records.len() as u64, record.to_vec());
                }
            });
        }
        records
    }

    /// What was found is executed and stable: nobody is relied on any more.
    pub fn forget_all(&mut self) {
        self.list.clear();
    }
}

fn send(links: &mut [Link], index: usize, message: &ToKeeper<'_>) {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    links[index].there.push_back(bytes);
}

fn say(link: &mut Link, message: &FromKeeper<'_>) {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    link.back.push_back(bytes);
}
