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
    .summary = "a directory that is slower than expected or returns wrong data",
    .needs = "--directory",
    .deadline_s = 90,
    .blame = Blame::storage,
    .cost = health::Cost::seconds,
    .takes = health::kDisk,
    .explain =
        "Four threads write up to 4 GiB, but at most a twentieth of the free space, into the directory given with "
        "--directory, in blocks of 1 MiB without the page cache, for at most eight seconds and until the data are "
        "durable. Then they read it back and compare every byte, and write 4 KiB blocks with fdatasync for three "
        "seconds.\n\n"
        "The files have no name, so nothing remains even if the test is killed. The test runs as the calling user, so "
        "it shows that a job of this user can write and read there. File systems without direct I/O are measured with "
        "their caches, which the note reports. The limits are active.disk_write_gbps, active.disk_read_gbps and "
        "active.disk_fsyncs.",
    .remedy = "See what else uses it, whether it is nearly full, and the state of the disk (disk.errors, disk.raid).",
    .run = measure_disk_here};

}  // namespace ms::diag
