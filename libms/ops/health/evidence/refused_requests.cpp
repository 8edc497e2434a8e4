#include "health/evidence/refused_requests.h"

#include <algorithm>
#include <iterator>

namespace ms::health {
namespace {

// Status codes of NVM Express: generic ones have the type 0, media errors 2.
constexpr DiskRefusal kOfNvme[] = {
    {0x2, 0x86, Severity::note, {}},
    {0x0, 0x1d, Severity::warning, "the disk was being erased (sanitize)"},
    {0x0, 0x20, Severity::warning, "the disk is write-protected"},
    {0x0, 0x80, Severity::warning, "a request went beyond the disk's end"},
};
constexpr DiskRefusal kOfScsi = {0, 0, Severity::note, {}};
constexpr std::uint64_t kScsiDiscards[] = {0x41, 0x42, 0x93};  // WRITE SAME (10), UNMAP, WRITE SAME (16)

// "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Access Denied (sct 0x2 / sc 0x86) DNR"
bool read_nvme(Scan line, std::string& disk, const DiskRefusal*& refusal) {
  disk = line.device();
  if (!disk.starts_with("nvme") || !line.literal(": ")) return false;
  constexpr std::string_view kStatus = "(sct 0x";
  const std::size_t at = line.rest().find(kStatus);
  if (at == std::string_view::npos) return false;
  line = Scan(line.rest().substr(at + kStatus.size()));
  const auto type = line.hex();
  const auto code = line.literal(" / sc 0x") ? line.hex() : std::nullopt;
  const auto row =
      std::ranges::find_if(kOfNvme, [&](const DiskRefusal& each) { return type == each.type && code == each.code; });
  refusal = row == std::end(kOfNvme) ? nullptr : row;
  return true;
}

// "sd 0:0:0:0: [sda] tag#1 CDB: Write same(16) 93 08 00 ...": the first byte is the command.
bool read_scsi(Scan line, std::string& disk, const DiskRefusal*& refusal) {
  if (!line.literal("sd ") || !line.name().ends_with(':') || !line.literal(" [")) return false;
  disk = line.device();
  if (!line.literal("] ")) return false;
  if (line.literal("tag#") && (!line.number() || !line.literal(" "))) return false;
  if (!line.literal("CDB: ")) return false;
  for (std::string_view rest = line.rest(); !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    Scan byte(word);
    const auto command = word.size() == 2 ? byte.hex() : std::nullopt;
    if (!command || !byte.at_end()) continue;
    refusal = std::ranges::find(kScsiDiscards, *command) == std::end(kScsiDiscards) ? nullptr : &kOfScsi;
    return true;
  }
  return false;
}

}  // namespace

void RefusedRequests::read(Scan line, double when_s) {
  std::string disk;
  const DiskRefusal* refusal = nullptr;
  if (read_nvme(line, disk, refusal) || read_scsi(line, disk, refusal)) by_disk_[disk] = {refusal, when_s};
}

const DiskRefusal* RefusedRequests::explain(const std::string& disk, double when_s) const {
  constexpr double kTogether_s = 10;
  const auto last = by_disk_.find(disk);
  return last == by_disk_.end() || when_s - last->second.when_s >= kTogether_s ? nullptr : last->second.refusal;
}

}  // namespace ms::health
