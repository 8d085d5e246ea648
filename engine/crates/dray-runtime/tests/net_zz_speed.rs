mod net_common;
use net_common::*;
use std::time::Instant;
#[test]
fn speed() {
    let site = Site::start(&Change {
        buffers: 64,
        ..Change::default()
    });
    for clear in [true, false, true, false] {
        let (source, sink, pool) = site.push(&site.dial(), connect(1, clear));
        let (_, mut stream) = next_stream(&source.link.events);
        let object = Object::noise(1, 1 << 20);
        let n = 3000u64;
        let (credit_in, credit) = crossbeam_channel::bounded::<()>(64);
        for _ in 0..60 {
            credit_in.send(()).unwrap();
        }
        let begin = Instant::now();
        let cpu = cpu();
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..n {
                    credit.recv().unwrap();
                    object.send(&mut *stream).unwrap();
                }
            });
            for _ in 0..n {
                let a = arrived(&sink.link.events);
                a.verified.unwrap();
                pool.give(a.buffer.unwrap());
                let _ = credit_in.try_send(());
            }
        });
        let t = begin.elapsed().as_secs_f64();
        println!(
            "clear={clear} {:.0} MiB/s, cpu {:.2} s/GiB",
            n as f64 / t,
            (self::cpu() - cpu) / (n as f64 / 1024.0)
        );
    }
}
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0
}
