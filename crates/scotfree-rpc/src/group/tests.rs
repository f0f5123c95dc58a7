//! The decisions of a group's client, with servers that fail, refuse and come back as a seed says, and with each rule
//! switched off in its turn.

mod rules;
mod world;
