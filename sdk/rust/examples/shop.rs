// SPDX-License-Identifier: Apache-2.0
//! A small shop that serves imaginary requests and publishes what it does, all of it without a call while it works:
//! `cargo run -p onlooker-sdk --example shop -- 60`. `onlooker top` then shows two regions: `shop` (the globals) and `shop_orders`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use onlooker_sdk::{
    Counter, Gauge, Guarded, Handle, Histogram, Metric, OpenError, Region, Rows, Slot, Text, UpDown, globals,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
const CUSTOMERS: [&str; 5] = ["ada", "grace", "hedy", "katherine", "margaret"];

globals! {
    /// Known when the program is linked: an increment is one instruction on a constant address.
    pub static SHOP: Shop = "shop" {
        /// People who came in
        visits: Counter = "shop_visits_total", unit "visits";
        /// People in the shop
        visitors: UpDown = "shop_visitors", unit "visitors";
        /// How warm it is
        temperature: Gauge<f64> = "shop_temperature_celsius", unit "celsius", labels { "room": "front" };
        /// Jobs done
        jobs: [Counter; WORKERS] = "shop_jobs_total", unit "jobs", per "worker";
    }
}

/// A region, whose shape is known when the program runs.
struct Orders {
    paid: Handle<Counter>,
    refused: Handle<Counter>,
    latency: Histogram,
    /// Its values always fit together.
    till: Guarded,
    sales: Slot<u64>,
    cents: Slot<u64>,
    mean_cents: Slot<f64>,
    customers: Rows<(Text<16>,)>,
    customer_orders: Slot<u64>,
    customer_cents: Slot<u64>,
}

impl Orders {
    fn open() -> Result<Self, OpenError> {
        let mut region = Region::builder("shop_orders");
        region.label("branch", "harbour");
        let order = || Metric::new("shop_orders_total").unit("orders").help("Orders");
        let paid = region.counter(order().label("result", "paid"));
        let refused = region.counter(order().label("result", "refused"));
        let seconds = Metric::new("shop_order_seconds").unit("seconds").help("Time from order to answer").scale(1e-9);
        let latency = region.histogram(seconds, 3, 36);
        let (till, (sales, cents, mean_cents)) = region.guarded(|till| {
            (
                till.counter(Metric::new("shop_till_sales_total").unit("sales").help("Sales")),
                till.counter(Metric::new("shop_till_cents_total").help("Cents taken")),
                till.gauge(Metric::new("shop_till_mean_cents").help("Cents a sale")),
            )
        });
        let (customers, (customer_orders, customer_cents)) = region.table::<(Text<16>,), _>(["customer"], 64, |row| {
            (
                row.counter(Metric::new("shop_customer_orders_total").unit("orders")),
                row.counter("shop_customer_cents_total"),
            )
        });
        let region = region.open()?;
        Ok(Self {
            paid: region.get(paid),
            refused: region.get(refused),
            latency: region.get(latency),
            till: region.get(till),
            sales,
            cents,
            mean_cents,
            customers: region.get(customers),
            customer_orders,
            customer_cents,
        })
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed >> 8
}

fn serve(orders: &Orders, worker: usize, seed: &mut u64) {
    let began = Instant::now();
    let cents = 100 + random(seed) % 5000;
    SHOP.visits.inc();
    SHOP.visitors.inc();
    std::thread::sleep(Duration::from_micros(200 + random(seed) % 2000));
    if random(seed).is_multiple_of(20) {
        orders.refused.inc();
    } else {
        orders.paid.inc();
        orders.till.commit(|till| {
            till.add(orders.sales, 1);
            till.add(orders.cents, cents);
            #[allow(clippy::cast_precision_loss, reason = "a mean for people")]
            till.set(orders.mean_cents, till.get(orders.cents) as f64 / till.get(orders.sales) as f64);
        });
        let customer = CUSTOMERS[usize::try_from(random(seed) % 5).unwrap_or(0)];
        // Refused where the table is full: with five customers it is not.
        let _known = orders.customers.upsert((customer,), |row| {
            row.add(orders.customer_orders, 1);
            row.add(orders.customer_cents, cents);
        });
    }
    orders.latency.record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    SHOP.jobs[worker].inc();
    SHOP.visitors.dec();
}

fn main() -> Result<(), OpenError> {
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(10u32);
    onlooker_sdk::start();
    let orders = Orders::open()?;
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (orders, stopped) = (&orders, &stopped);
            scope.spawn(move || {
                let mut seed = 0x9e37_79b9_7f4a_7c15 ^ (worker as u64 + 1);
                while !stopped.load(Relaxed) {
                    serve(orders, worker, &mut seed);
                }
            });
        }
        for second in 0..seconds {
            SHOP.temperature.set(19.0 + f64::from(second % 20) / 10.0);
            std::thread::sleep(Duration::from_secs(1));
        }
        stopped.store(true, Relaxed);
    });
    let status = onlooker_sdk::status();
    let error = status.error.map(|error| format!("; last error: {error}")).unwrap_or_default();
    let (visits, paid) = (SHOP.visits.value(), orders.paid.value());
    println!("{visits} visits, {paid} orders; {} of {} regions published{error}", status.published, status.regions);
    println!("moved {} times, at most {:?} each", status.switches, status.worst_window);
    Ok(())
}
