//! What is refused before anything begins: lists of servers and of functions that cannot work.

use remedy_toy::Toy;
use scotfree_core::{BootEpoch, DeviceId, Nanos, Token, SERVERS_MAX};
use scotfree_device::{
    arrange, check_servers, Base, ConfigError, DeviceConfig, DeviceEffects, Function, ListError, Maker,
    Passing, Pipeline, RestoreError, Served, Verdict,
};
use scotfree_session::by_hand::{address, cluster, device_address, NOW};
use scotfree_session::Planted;
use scotfree_wire::Family;
use std::any::Any;

const ALL: &[Maker] = &[remedy_persist::MAKER, remedy_toy::MAKER];

fn arranged(names: &[&str]) -> Result<Vec<&'static str>, ListError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Ok(arrange(&names, ALL)?.iter().map(|maker| maker.name).collect())
}

#[test]
fn the_order_of_the_list_is_the_configurations() {
    assert_eq!(arranged(&["toy", "persist"]), Ok(vec!["toy", "persist"]));
    assert_eq!(arranged(&["persist"]), Ok(vec!["persist"]));
    assert_eq!(arranged(&[]), Ok(vec![]));
}

#[test]
fn a_list_that_cannot_work_is_refused_with_the_mend() {
    let said = |names: &[&str]| arranged(names).expect_err("it cannot work").to_string();
    let unknown = said(&["cash", "persist"]);
    assert!(unknown.contains("no function `cash`") && unknown.contains("persist, toy"), "{unknown}");
    assert_eq!(said(&["toy", "persist", "toy"]), "function `toy` is listed twice; name it once");
    let first = said(&["persist", "toy"]);
    assert!(first.contains("must be the last") && first.contains("move `persist` to the end"), "{first}");
}

/// What would have the toy's family, and is another.
#[derive(Debug)]
struct Twin(Toy);

impl Function for Twin {
    fn name(&self) -> &'static str {
        "twin"
    }

    fn family(&self) -> Family {
        self.0.family()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn on_packet(
        &mut self,
        _now: Nanos,
        _base: &mut Base,
        _passing: &mut Passing<'_>,
        _effects: &mut DeviceEffects,
    ) -> Verdict {
        Verdict::Next
    }
}

#[test]
fn two_functions_of_one_family_are_refused() {
    const TWIN: Maker = Maker::plain("twin", |settings| Box::new(Twin(Toy::new(b"", settings.planted))));
    let names = ["toy", "twin"].map(str::to_owned);
    let refused =
        arrange(&names, &[TWIN, remedy_toy::MAKER]).expect_err("one of them hears nothing").to_string();
    assert!(refused.starts_with("functions `toy` and `twin` are both of the family Trial"), "{refused}");
    assert!(refused.ends_with("keep one of them"), "{refused}");
}

#[test]
fn a_device_begins_with_no_list_that_cannot_work() {
    let config = || DeviceConfig::new(DeviceId(1), BootEpoch(1), device_address(), address(2), cluster());
    let toy = || -> Box<dyn Function> { Box::new(Toy::new(b"", Planted::NONE)) };
    let refused = Pipeline::new(config(), vec![toy(), toy()]).expect_err("the toy stands there twice");
    assert_eq!(refused, ListError::Twice("toy".to_owned()));
    assert!(Pipeline::new(config(), vec![toy()]).is_ok());
}

#[test]
fn a_record_of_a_function_that_keeps_none_is_refused() {
    let config = DeviceConfig::new(DeviceId(1), BootEpoch(1), device_address(), address(2), cluster());
    let mut device =
        Pipeline::new(config, vec![Box::new(Toy::new(b"", Planted::NONE))]).expect("one function");
    assert_eq!(device.restore(NOW, Token(4), b"whose?"), Err(RestoreError::Layout));
}

#[test]
fn a_device_serves_servers_max_servers_each_named_once() {
    let servers = |count: usize| -> Vec<Served> {
        (0..count).map(|last| Served::new(address(last as u8 + 1))).collect()
    };
    assert_eq!(check_servers(&servers(0)), Err(ConfigError::NoServer));
    assert_eq!(check_servers(&servers(SERVERS_MAX)), Ok(()));
    let many = check_servers(&servers(SERVERS_MAX + 1)).expect_err("one too many");
    assert_eq!(many, ConfigError::ManyServers(17));
    assert!(many.to_string().contains("put the others behind another device"), "{many}");
    let twice = [servers(3), servers(1)].concat();
    assert_eq!(check_servers(&twice), Err(ConfigError::ServerTwice(address(1))));
}
