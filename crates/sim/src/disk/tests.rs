use super::*;

fn read(disk: &SimDisk, name: &str, offset: u64, count: usize) -> Vec<u8> {
    let mut buffer = vec![0; count];
    disk.open(name).unwrap().read_at(offset, &mut buffer).unwrap();
    buffer
}

#[test]
fn synced_bytes_survive_every_power_loss() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 4096).unwrap();
        file.write_at(100, &[7; 2000]).unwrap();
        file.sync().unwrap();
        file.write_at(2500, &[8; 1000]).unwrap();
        disk.power_loss();
        assert_eq!(read(&disk, "log", 100, 2000), [7; 2000], "seed {seed}");
    }
}

#[test]
fn unsynced_sectors_are_lost_kept_and_torn_independently() {
    let (mut lost, mut kept, mut torn, mut disordered) = (0, 0, 0, 0);
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 4096).unwrap();
        file.write_at(0, &[9; 4096]).unwrap();
        disk.power_loss();
        let bytes = read(&disk, "log", 0, 4096);
        let survived: Vec<bool> = bytes.chunks(SECTOR_BYTES).map(|sector| sector[0] == 9).collect();
        for sector in bytes.chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is written whole or not at all");
        }
        match (survived.iter().all(|&whole| whole), survived.iter().any(|&whole| whole)) {
            (true, _) => kept += 1,
            (_, false) => lost += 1,
            _ if survived.is_sorted_by(|earlier, later| earlier >= later) => torn += 1,
            _ => disordered += 1,
        }
    }
    assert!(lost > 5 && kept > 5 && torn > 5 && disordered > 5, "{lost} {kept} {torn} {disordered}");
}

#[test]
fn a_sector_rewritten_before_its_sync_can_return_to_any_state_in_between() {
    let mut seen = [0; 3];
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 512).unwrap();
        file.write_at(0, &[1; 512]).unwrap();
        file.write_at(0, &[2; 512]).unwrap();
        disk.power_loss();
        seen[usize::from(read(&disk, "log", 0, 1)[0])] += 1;
    }
    assert!(seen.iter().all(|&times| times > 5), "{seen:?}");
}

#[test]
fn a_killed_process_loses_nothing_until_the_power_goes_too() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 512).unwrap();
        file.write_at(0, &[1; 512]).unwrap();
        disk.kill();
        assert!(file.sync().is_err(), "a dead process syncs nothing");
        assert_eq!(read(&disk, "log", 0, 1), [1]);
        disk.power_loss();
        lost += u64::from(read(&disk, "log", 0, 1) == [0]);
    }
    assert!(lost > 10, "what was never synced can be lost later: {lost}");
}

#[test]
fn an_unsynced_size_may_be_old_or_new() {
    let mut sizes = BTreeMap::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 1000).unwrap();
        file.resize(3000).unwrap();
        disk.power_loss();
        *sizes.entry(disk.open("log").unwrap().size().unwrap()).or_insert(0) += 1;
    }
    assert!(sizes[&1000] > 5 && sizes[&3000] > 5, "{sizes:?}");
}

#[test]
fn bytes_behind_a_synced_cut_do_not_come_back() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 2048).unwrap();
        file.write_at(0, &[5; 2048]).unwrap();
        file.sync().unwrap();
        file.resize(700).unwrap();
        file.resize(2048).unwrap();
        file.sync().unwrap();
        disk.power_loss();
        assert_eq!(read(&disk, "log", 700, 1348), [0; 1348]);
        assert_eq!(read(&disk, "log", 0, 700), [5; 700]);
    }
}

#[test]
fn a_full_disk_refuses_growth_but_not_writes_into_reserved_space() {
    let disk = SimDisk::new(1);
    let mut file = disk.create("log", 1024).unwrap();
    disk.set_free_bytes(Some(100));
    assert!(disk.create("next", 1024).unwrap_err().kind == DiskErrorKind::NoRoom);
    assert_eq!(disk.list().unwrap(), ["log"], "nothing of it stays");
    file.write_at(0, &[1; 1024]).unwrap();
    assert!(file.write_at(1000, &[1; 200]).unwrap_err().kind == DiskErrorKind::NoRoom);
    disk.set_free_bytes(None);
    disk.create("next", 1024).unwrap();
}

#[test]
fn without_descriptors_open_files_work_on_and_others_wait_for_the_next_process() {
    let disk = SimDisk::new(1);
    let mut file = disk.create("log", 1024).unwrap();
    disk.set_no_descriptors(true);
    let refused = [disk.create("next", 0).map(drop), disk.open("log").map(drop)];
    for result in refused {
        assert_eq!(result.unwrap_err().kind, DiskErrorKind::NoDescriptors);
    }
    file.write_at(0, &[1; 512]).unwrap();
    file.sync().unwrap();
    disk.kill();
    assert_eq!(read(&disk, "log", 0, 512), [1; 512]);
}

#[test]
fn a_read_only_disk_refuses_changes_and_keeps_what_was_written() {
    let disk = SimDisk::new(1);
    let mut file = disk.create("log", 1024).unwrap();
    file.write_at(0, &[1; 512]).unwrap();
    disk.set_read_only(true);
    let refused = [
        file.write_at(0, &[2; 512]),
        file.resize(2048),
        disk.create("next", 0).map(drop),
        disk.rename("log", "other"),
        disk.remove("log"),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind, DiskErrorKind::ReadOnly);
    }
    file.sync().unwrap();
    disk.set_read_only(false);
    disk.power_loss();
    assert_eq!(read(&disk, "log", 0, 512), [1; 512]);
    assert_eq!(disk.list().unwrap(), ["log"]);
}

#[test]
fn a_failed_sync_keeps_a_part_and_says_so() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 4096).unwrap();
        file.write_at(0, &[9; 4096]).unwrap();
        disk.fail_next_sync();
        assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Other);
        lost += u64::from(read(&disk, "log", 0, 4096).contains(&0));
    }
    assert!(lost > 50);
}

#[test]
fn a_process_that_dies_inside_an_operation_does_no_other() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let mut file = disk.create("log", 1024).unwrap();
        disk.die_after(2);
        file.write_at(0, &[1; 10]).unwrap();
        assert!(file.write_at(10, &[1; 10]).is_err());
        assert!(disk.is_dead());
        assert!(file.sync().is_err() && disk.remove("log").is_err());
        disk.kill();
        assert!(!disk.is_dead());
        assert_eq!(read(&disk, "log", 0, 10), [1; 10]);
        disk.remove("log").unwrap();
    }
}

#[test]
fn a_flipped_bit_is_visible_and_durable() {
    let disk = SimDisk::new(1);
    disk.create("log", 16).unwrap();
    disk.flip_bit("log", 35);
    disk.power_loss();
    assert_eq!(read(&disk, "log", 4, 1), [8]);
}

#[test]
fn a_copy_that_is_put_back_is_all_that_there_is_and_durable() {
    let disk = SimDisk::new(1);
    let mut file = disk.create("kept", 4).unwrap();
    file.write_at(0, b"old!").unwrap();
    let copy = disk.copy();
    file.write_at(0, b"new!").unwrap();
    file.sync().unwrap();
    disk.create("later", 1).unwrap();
    disk.kill();
    disk.put_back(copy);
    assert!(file.write_at(0, b"gone").is_err(), "its process is gone");
    disk.power_loss();
    assert_eq!(disk.list().unwrap(), ["kept"]);
    let mut bytes = [0; 4];
    disk.open("kept").unwrap().read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"old!");
}
