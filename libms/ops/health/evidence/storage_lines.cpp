#include "health/evidence/storage_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace ms::health {
namespace {

constexpr std::string_view kZpool =
    "See zpool status -v; replace the disk that it names, then zpool clear. A suspended pool blocks what uses it.";
constexpr std::string_view kController =
    "Query the controller with its vendor's tool (storcli, sas3ircu, ssacli) and replace what that names; if it names "
    "nothing, update the controller's firmware.";

// "WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended."
bool read_pool(Scan line, LogTally& tally) {
  if (!line.literal("WARNING: Pool '")) return false;
  const std::string_view pool = line.rest().substr(0, line.rest().find('\''));
  line = Scan(line.rest().substr(pool.size()));
  if (!line.literal("' has encountered an uncorrectable I/O failure and has been suspended")) return false;
  tally.add(Severity::warning, fmt::format("pool {}", printable(pool)), "ZFS suspended it after an I/O failure",
            kZpool);
  return true;
}

// "zio pool=tank vdev=/dev/sda1 error=5 type=1 offset=270336 size=8192 flags=180880"; 1: read, 2: write.
bool read_zio(Scan line, LogTally& tally) {
  if (!line.literal("zio pool=")) return false;
  const std::string_view pool = line.name();
  if (!line.literal(" vdev=/")) return false;
  line = Scan(line.rest().substr(std::min(line.rest().find(" error="), line.rest().size())));
  if (!line.literal(" error=") || !line.number()) return false;
  if (!line.one_of({" type=1 ", " type=2 "})) return false;
  tally.add(Severity::warning, fmt::format("pool {}", printable(pool)), "ZFS could not read or write a disk", kZpool);
  return true;
}

// "mpt3sas_cm0: fault_state(0x5854)!"
bool read_mpt3sas(Scan line, LogTally& tally) {
  const std::string_view controller = line.device();
  if (!controller.starts_with("mpt") || controller.find("sas_cm") == std::string_view::npos) return false;
  if (!line.literal(": fault_state(0x") || !line.hex() || !line.literal(")!") || !line.at_end()) return false;
  tally.add(Severity::warning, std::string(controller), "the controller's firmware stopped", kController);
  return true;
}

// "megaraid_sas 0000:18:00.0: 4711 (758263718s/0x0001/CRIT) - VD 00/0 is now DEGRADED"
bool read_megaraid(Scan line, LogTally& tally) {
  if (!line.literal("megaraid_sas ")) return false;
  std::string_view device = line.name();
  if (!device.ends_with(':') || !line.literal(" ") || !line.number() || !line.literal(" (")) return false;
  device.remove_suffix(1);
  const std::size_t end = line.rest().find(") - ");
  const std::string_view head = line.rest().substr(0, end);
  if (end == std::string_view::npos || head.find(' ') != std::string_view::npos) return false;
  const std::string_view grade = head.substr(head.rfind('/') + 1);
  if (grade != "CRIT" && grade != "FATAL" && grade != "DEAD") return false;
  tally.add(Severity::warning, std::string(device),
            fmt::format("it reports: {}", printable(line.rest().substr(end + 4))), kController);
  return true;
}

// "smartpqi 0000:5c:00.0: controller is offline: status code 0x6100c"
bool read_smartpqi(Scan line, LogTally& tally) {
  if (!line.literal("smartpqi ")) return false;
  std::string_view device = line.name();
  if (!device.ends_with(':') || !line.literal(" controller is offline: status code 0x") || !line.hex()) return false;
  device.remove_suffix(1);
  tally.add(Severity::warning, std::string(device), "the controller is offline", kController);
  return true;
}

}  // namespace

bool read_storage(Scan line, LogTally& tally) {
  return read_pool(line, tally) || read_zio(line, tally) || read_mpt3sas(line, tally) || read_megaraid(line, tally) ||
         read_smartpqi(line, tally);
}

}  // namespace ms::health
