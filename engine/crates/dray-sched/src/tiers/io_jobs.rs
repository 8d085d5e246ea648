//! Order of the I/O jobs of applications on each device (section 5.1.1 of BBOS, "I/O Engine").
//!
//! Each device has one queue for each application, and runs one job at a time. The queues are
//! served in turn. So two applications never write to a device at the same time. A job at the head
//! of its queue waits for at most one job of each other application.

use std::collections::{BTreeMap, VecDeque};

/// Index of a device of a fast tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceIndex(pub usize);

/// Queues of all devices of a fast tier. `Id` identifies a job.
#[derive(Debug, Clone)]
pub struct JobQueues<Id> {
    devices: BTreeMap<DeviceIndex, Device<Id>>,
}

#[derive(Debug, Clone)]
struct Device<Id> {
    /// Applications with waiting jobs, in the order of their turns.
    turns: VecDeque<String>,
    /// Waiting jobs of each application. No queue is empty.
    waiting: BTreeMap<String, VecDeque<Id>>,
    running: Option<Id>,
}

impl<Id> Default for Device<Id> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            waiting: BTreeMap::new(),
            running: None,
        }
    }
}

impl<Id> Default for JobQueues<Id> {
    fn default() -> Self {
        Self {
            devices: BTreeMap::new(),
        }
    }
}

impl<Id: Clone + PartialEq> JobQueues<Id> {
    /// Creates queues without jobs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job at the end of the queue of its application on a device. The turn of an
    /// application without waiting jobs comes after the turns of all others.
    pub fn submit(&mut self, device: DeviceIndex, application: &str, job: Id) {
        let device = self.devices.entry(device).or_default();
        if let Some(queue) = device.waiting.get_mut(application) {
            queue.push_back(job);
            return;
        }
        device.turns.push_back(application.to_owned());
        let queue = VecDeque::from([job]);
        device.waiting.insert(application.to_owned(), queue);
    }

    /// Starts the next job of a device and returns it. Returns `None` if a job runs on the device,
    /// or if no job waits.
    pub fn start(&mut self, device: DeviceIndex) -> Option<Id> {
        let device = self.devices.get_mut(&device)?;
        if device.running.is_some() {
            return None;
        }
        let application = device.turns.pop_front()?;
        let queue = device.waiting.get_mut(&application)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            device.waiting.remove(&application);
        } else {
            device.turns.push_back(application);
        }
        device.running.clone_from(&job);
        job
    }

    /// Returns the job that [`JobQueues::start`] would start. Returns `None` if a job runs on the
    /// device, or if no job waits.
    #[must_use]
    pub fn next(&self, device: DeviceIndex) -> Option<&Id> {
        let device = self.devices.get(&device)?;
        let application = device.turns.front().filter(|_| device.running.is_none())?;
        device.waiting.get(application)?.front()
    }

    /// Marks a job as running that was started before these queues were created.
    pub fn resume(&mut self, device: DeviceIndex, job: Id) {
        self.devices.entry(device).or_default().running = Some(job);
    }

    /// Ends the running job of a device, and returns it.
    pub fn finish(&mut self, device: DeviceIndex) -> Option<Id> {
        self.devices.get_mut(&device)?.running.take()
    }

    /// Removes a job that waits or runs. Returns true if the job was present.
    pub fn remove(&mut self, job: &Id) -> bool {
        for device in self.devices.values_mut() {
            if device.running.as_ref() == Some(job) {
                device.running = None;
                return true;
            }
            let mut emptied = None;
            let mut is_found = false;
            for (application, queue) in &mut device.waiting {
                let Some(at) = queue.iter().position(|waiting| waiting == job) else {
                    continue;
                };
                queue.remove(at);
                is_found = true;
                emptied = queue.is_empty().then(|| application.clone());
                break;
            }
            if let Some(application) = emptied {
                device.waiting.remove(&application);
                device.turns.retain(|turn| *turn != application);
            }
            if is_found {
                return true;
            }
        }
        false
    }

    /// Returns the running job of a device.
    #[must_use]
    pub fn running(&self, device: DeviceIndex) -> Option<&Id> {
        self.devices.get(&device)?.running.as_ref()
    }

    /// Returns the number of waiting jobs of a device.
    #[must_use]
    pub fn waiting(&self, device: DeviceIndex) -> usize {
        let device = self.devices.get(&device);
        device.map_or(0, |device| device.waiting.values().map(VecDeque::len).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceIndex, JobQueues};
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    const DEVICE: DeviceIndex = DeviceIndex(0);

    #[test]
    fn applications_take_turns() {
        let mut queues = JobQueues::new();
        for (application, job) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5)] {
            queues.submit(DEVICE, application, job);
        }
        let mut order = Vec::new();
        while let Some(job) = queues.start(DEVICE) {
            assert_eq!(queues.start(DEVICE), None, "one job at a time");
            order.push(job);
            assert_eq!(queues.finish(DEVICE), Some(job));
        }
        assert_eq!(order, [1, 3, 5, 2, 4]);
        assert_eq!(queues.waiting(DEVICE), 0);
    }

    #[test]
    fn removed_jobs_leave_no_turn_behind() {
        let mut queues = JobQueues::new();
        queues.submit(DEVICE, "a", 1);
        queues.submit(DEVICE, "b", 2);
        queues.submit(DEVICE, "b", 3);
        assert_eq!(queues.start(DEVICE), Some(1));
        assert!(queues.remove(&1) && queues.remove(&2) && !queues.remove(&2));
        assert_eq!(queues.start(DEVICE), Some(3));
        assert!(queues.remove(&3));
        assert_eq!(queues.start(DEVICE), None);
        queues.submit(DEVICE, "b", 4);
        assert_eq!(queues.start(DEVICE), Some(4));
        assert_eq!(queues.start(DeviceIndex(7)), None);
        queues.submit(DEVICE, "a", 5);
        assert_eq!(queues.next(DEVICE), None, "a job runs");
        let mut resumed = JobQueues::new();
        resumed.resume(DEVICE, 4);
        resumed.submit(DEVICE, "a", 5);
        assert_eq!(resumed.running(DEVICE), Some(&4));
        assert_eq!(resumed.start(DEVICE), None);
        assert!(resumed.remove(&4));
        assert_eq!(resumed.start(DEVICE), Some(5));
    }

    /// Checks `no_overlap` and `no_starvation` of docs/design/tiers.md.
    #[test]
    fn a_job_at_the_head_waits_for_one_job_of_each_other_application() {
        for seed in 0..300 {
            let mut draw = Rng::new(seed);
            let mut queues = JobQueues::new();
            // For each application: the number of jobs of each other application that started since
            // the application's first waiting job came to the head of its queue.
            let mut passed: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
            let mut waiting: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let mut runs = None;
            for job in 0..400 {
                let application = draw.below(6);
                if draw.below(5) < 3 {
                    queues.submit(DEVICE, &format!("a{application}"), (application, job));
                    let queue = waiting.entry(application).or_default();
                    queue.push(job);
                    if queue.len() == 1 {
                        passed.insert(application, BTreeMap::new());
                    }
                }
                if draw.below(2) == 0 {
                    assert_eq!(queues.finish(DEVICE), runs.take());
                }
                let busy = runs.is_some();
                let next = queues.next(DEVICE).copied();
                let begun = queues.start(DEVICE);
                assert_eq!(next, begun, "seed {seed}: another job than the next one");
                let Some((owner, started)) = begun else {
                    let is_idle = !busy && waiting.values().all(Vec::is_empty);
                    assert!(
                        busy || is_idle,
                        "seed {seed}: a job waits, and the device is idle"
                    );
                    continue;
                };
                assert!(!busy, "seed {seed}: two jobs on a device");
                runs = Some((owner, started));
                let queue = waiting.get_mut(&owner).expect("submitted");
                assert_eq!(queue.remove(0), started, "seed {seed}: out of order");
                passed.insert(owner, BTreeMap::new());
                for (other, counts) in &mut passed {
                    if *other != owner && !waiting[other].is_empty() {
                        let count = counts.entry(owner).or_default();
                        *count += 1;
                        assert!(*count <= 1, "seed {seed}: a{other} starves");
                    }
                }
            }
        }
    }
}
