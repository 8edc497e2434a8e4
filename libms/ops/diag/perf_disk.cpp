// perf.disk: bandwidth and fsync latency in a directory that its caller names.
#include "base/text.h"
#include "diag/disk.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

health::Result measure_disk_here(health::Evidence& evidence) {
  const std::string& directory = evidence.asked().directory;
  if (directory.empty()) return health::skipped("--directory names no directory to write to");
  const Share share = this_share();
  if (share.index > 0) return health::skipped("the first process of this node does it");
  const DiskSpeed speed = measure_disk(directory, {});
  if (speed.num_wrong > 0) {
    return health::judged({{.severity = Severity::critical,
                            .entity = directory,
                            .message = fmt::format("{} of {} MiB that were read are not what was written",
                                                   speed.num_wrong, speed.bytes >> 20),
                            .measured = static_cast<double>(speed.num_wrong),
                            .limit = 0,
                            .unit = "MiB",
                            .remedy = "Save no checkpoint there until the disk or the server is repaired."}});
  }
  const std::size_t count = speed.fsync_s.size();
  const double median_s = speed.fsync_s[count / 2], p99_s = speed.fsync_s[count * 99 / 100];
  const health::ActiveConfig& expect = evidence.policy().active;
  return judge_rates({{"write", speed.write_gbps, expect.disk_write_gbps, "GB/s"},
                      {"read", speed.read_gbps, expect.disk_read_gbps, "GB/s"},
                      {"fdatasync", 1 / median_s, expect.disk_fsyncs, "a second"}},
                     expect.min_fraction, share, Scope::whole,
                     fmt::format("{} in {}{}, fdatasync median {:.3g} ms, p99 {:.3g} ms",
                                 format_size(static_cast<double>(speed.bytes)), directory,
                                 speed.direct ? "" : " with the page cache's help", 1e3 * median_s, 1e3 * p99_s));
}

}  // namespace

extern constinit const health::Check kPerfDisk = {
    .code = "perf.disk",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "a directory that is slower than expected, or gives back other bytes than were written",
    .needs = "--directory",
    .deadline_s = 90,
    .blame = Blame::storage,
    .cost = health::Cost::seconds,
    .takes = health::kDisk,
    .explain =
        "Writes up to 4 GiB, never more than a twentieth of what is free, into the directory that --directory names, "
        "by four threads in blocks of 1 MiB past the page cache, for at most eight seconds and until it is durable; "
        "reads it back and compares every byte; then writes 4 KiB with fdatasync again and again for three "
        "seconds.\n\nIts files have no name: nothing stays of them, even if the test is killed. It runs as whoever "
        "calls "
        "it, so it shows that a job's user can write and read there. A file system without direct I/O is measured "
        "with its caches, and the note says so. Judged against active.disk_write_gbps, active.disk_read_gbps and "
        "active.disk_fsyncs.",
    .remedy = "See what else uses it, whether it is nearly full, and the state of the disk (disk.errors, disk.raid).",
    .run = measure_disk_here};

}  // namespace ms::diag
