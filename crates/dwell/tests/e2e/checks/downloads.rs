//! curl from nginx, over IPv4 and IPv6, of what shrinks and what does not.

use anyhow::ensure;
use dwell_lab::lab::Lab;
use dwell_lab::relays::{RelayRate, RelaySettings};

use crate::site::{self, Site};
use crate::web::Web;

pub(super) fn run(lab: &mut Lab, scheme: &str, codec: &str, sealed: bool) -> anyhow::Result<()> {
    let known = site::settings();
    // With plain datagrams the relays find the link's rate by themselves.
    let rate = if sealed { known.rate } else { RelayRate::Auto };
    let (scheme, codec) = (scheme.to_owned(), codec.to_owned());
    let settings = RelaySettings { scheme, codec, sealed, rate, ..known };
    let site = Site::thin(lab, &settings)?;
    let web = Web::start(&site, 400_000, 200_000)?;
    web.fetch_all(&site.pair.client)?;
    let [_, egress] = site.verify_lossless()?;
    let tx = &egress.peers[0].tx;
    let compressed = tx.compressed.packets;
    match settings.scheme.as_str() {
        "none" => {
            ensure!(compressed == 0 && tx.tried == 0, "compressed without being asked: {tx:#?}");
        }
        _ => ensure!(compressed > 0, "text was not compressed: {tx:#?}"),
    }
    println!("{compressed} of {} packets compressed", tx.sent.packets);
    Ok(())
}
