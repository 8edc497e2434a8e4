#include "health/commands/causes.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <utility>

namespace ms::health {
namespace {

constexpr bool kSure = true;
constexpr bool kMaybe = false;

constexpr CauseRow kCauseRows[] = {
    {"gpu.count", "gpu.driver", Tie::node, kSure},
    {"gpu.count", "gpu.xid", Tie::node, kMaybe, "*", "*: Xid 79:*"},
    {"gpu.count", "host.pcie"},
    {"gpu.xid", "gpu.lost", Tie::device, kSure, "*: Xid 79:*"},
    {"gpu.xid", "gpu.ecc", Tie::device, kSure, "*: Xid 48:*", "*uncorrectable*"},
    {"gpu.xid", "gpu.sxid", Tie::node, kMaybe, "*: Xid 74:*"},
    {"gpu.xid", "host.pcie", Tie::device, kMaybe},
    {"gpu.remap", "gpu.ecc", Tie::device, kMaybe, "*", "*uncorrectable*"},
    {"gpu.recovery", "gpu.ecc", Tie::device, kMaybe, "*", "*uncorrectable*"},
    {"gpu.recovery", "gpu.xid", Tie::device, kMaybe},
    // A fatal SXid takes NVLinks of the node down until its GPUs and switches are reset.
    {"gpu.nvlink", "gpu.sxid", Tie::node, kSure, "*", "*: fatal *"},
    {"gpu.nvlink", "gpu.fabric", Tie::device, kMaybe},
    {"gpu.fabric", "gpu.sxid", Tie::node, kMaybe, "*", "*: fatal *"},
    {"gpu.nverrors", "gpu.sxid"},
    {"gpu.busy", "host.strays", Tie::named, kSure},
    {"gpu.busy", "host.strays", Tie::node, kMaybe, "*the driver names no process"},
    {"host.memory", "host.dimms", Tie::node, kSure, "*expected", "DIMMs: *"},
    {"host.memory", "host.mce", Tie::node, kMaybe, "*", "*uncorrected*"},
    {"host.dimms", "host.mce", Tie::node, kMaybe, "DIMMs: *", "*uncorrected*"},
    {"host.numa", "host.dimms"},
    {"host.numa", "host.memory"},
    {"host.modules", "host.version", Tie::node, kMaybe, "*", "kernel: *"},
    {"host.procs", "host.version", Tie::node, kMaybe, "*", "kernel: *"},
    {"host.procs", "host.modules"},
    {"host.hung", "disk.nvme", Tie::node, kMaybe, "task *"},
    {"host.hung", "disk.nfs", Tie::node, kMaybe, "task *"},
    {"host.hung", "disk.lustre", Tie::node, kMaybe, "task *"},
    {"host.hung", "disk.errors", Tie::node, kMaybe, "task *"},
    {"host.load", "host.strays", Tie::node, kMaybe, "load: *"},
    {"host.free", "host.strays"},
    {"host.swap", "host.strays"},
    {"disk.errors", "disk.nvme", Tie::device, kSure, "*", "*: is dead*"},
    {"disk.raid", "disk.nvme"},
    {"disk.raid", "disk.errors"},
    {"disk.ro", "disk.errors", Tie::named, kSure, "*the kernel made it read-only after an error*"},
    {"disk.ro", "disk.errors", Tie::named, kMaybe},
    {"disk.mounts", "disk.nfs", Tie::named, kSure},
    {"disk.mounts", "disk.nfs", Tie::node, kMaybe, "*: is not mounted"},
    {"disk.mounts", "disk.lustre", Tie::node, kMaybe, "*lustre*"},
    {"disk.nfs", "net.link"},
    {"disk.lustre", "net.link"},
    {"net.link", "net.hcas", Tie::node, kMaybe, "*: is not there*", "adapters: *"},
    {"net.link", "net.mlx5"},
    {"net.flaps", "net.link", Tie::device, kMaybe},
    {"net.errors", "net.link", Tie::device, kMaybe},
    {"net.mlx5", "host.pcie", Tie::device, kMaybe},
    {"net.pcie", "host.pcie", Tie::device, kMaybe},
    {"slurm.gres", "gpu.driver"},
    {"slurm.gres", "gpu.count"},
    {"slurm.gres", "gpu.lost"},
};

// Names of files and hosts go on over these, and end at ':' and brackets.
bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'; }

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word_char(text[at - 1])) && (end == text.size() || !is_word_char(text[end]))) return true;
  }
  return false;
}

// "nvme0n1" and "nvme0n1p2" -> "nvme0"; others as they are.
std::string_view without_namespace(std::string_view device) {
  constexpr std::string_view kNvme = "nvme";
  const std::size_t end = device.find_first_not_of("0123456789", kNvme.size());
  const bool has_namespace = device.starts_with(kNvme) && end != std::string_view::npos && device[end] == 'n';
  return has_namespace ? device.substr(0, end) : device;
}

bool is_same_device(std::string_view a, std::string_view b) {
  a = without_namespace(a);
  b = without_namespace(b);
  return has_word(a, b) || has_word(b, a);
}

bool says(const Finding& finding, std::string_view pattern) {
  const std::string text = fmt::format("{}: {}", finding.entity, finding.message);
  return fnmatch(std::string(pattern).c_str(), text.c_str(), 0) == 0;
}

bool explains(const CauseRow& row, const Finding& cause, const Finding& effect) {
  if (effect.code != row.effect || cause.code != row.cause) return false;
  if (!says(effect, row.effect_says) || !says(cause, row.cause_says)) return false;
  switch (row.tie) {
    case Tie::node: return true;
    case Tie::device: return is_same_device(cause.entity, effect.entity);
    case Tie::named: return has_word(effect.message, cause.entity);
  }
  return false;
}

struct BecauseOf {
  std::size_t cause;
  bool sure;
};

std::optional<BecauseOf> cause_of(const Finding& effect, const std::vector<Finding>& findings) {
  for (const CauseRow& row : kCauseRows) {
    const auto cause = std::ranges::find_if(findings, [&](const Finding& f) { return explains(row, f, effect); });
    if (cause != findings.end()) return BecauseOf{static_cast<std::size_t>(cause - findings.begin()), row.sure};
  }
  return std::nullopt;
}

}  // namespace

std::span<const CauseRow> cause_rows() { return kCauseRows; }

std::vector<Explained> by_cause(const std::vector<Finding>& findings) {
  std::vector<std::optional<BecauseOf>> links;
  std::vector<std::size_t> roots;
  for (const Finding& finding : findings) {
    links.push_back(cause_of(finding, findings));
    if (!links.back()) roots.push_back(links.size() - 1);
  }
  const std::function<Severity(std::size_t)> worst = [&](std::size_t of) {
    Severity severity = findings[of].severity;
    for (std::size_t i = 0; i < findings.size(); ++i) {
      if (links[i] && links[i]->cause == of) severity = std::max(severity, worst(i));
    }
    return severity;
  };
  const auto rank = [&](std::size_t of) {
    return std::pair(worst(of),
                     std::ranges::any_of(links, [&](const auto& link) { return link && link->cause == of; }));
  };
  std::ranges::stable_sort(roots, [&](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
  std::vector<Explained> list;
  const std::function<void(std::size_t, std::optional<std::size_t>, std::size_t)> add =
      [&](std::size_t of, std::optional<std::size_t> cause, std::size_t depth) {
        const std::size_t place = list.size();
        list.push_back({findings[of], cause, links[of] && links[of]->sure, depth});
        for (std::size_t i = 0; i < findings.size(); ++i) {
          if (links[i] && links[i]->cause == of) add(i, place, depth + 1);
        }
      };
  for (const std::size_t root : roots) add(root, std::nullopt, 0);
  return list;
}

std::string causes_of(std::string_view code) {
  std::vector<std::string_view> sure, maybe;
  for (const CauseRow& row : kCauseRows) {
    std::vector<std::string_view>& list = row.sure ? sure : maybe;
    if (row.effect == code && std::ranges::find(list, row.cause) == list.end()) list.push_back(row.cause);
  }
  std::erase_if(maybe, [&](std::string_view cause) { return std::ranges::find(sure, cause) != sure.end(); });
  const std::string follow = sure.empty() ? "" : fmt::format("follow from those of {}", fmt::join(sure, ", "));
  const std::string may = maybe.empty() ? "" : fmt::format("may follow from those of {}", fmt::join(maybe, ", "));
  if (follow.empty() && may.empty()) return {};
  return fmt::format("Its findings {}{}{}.", follow, follow.empty() || may.empty() ? "" : ", and ", may);
}

}  // namespace ms::health
