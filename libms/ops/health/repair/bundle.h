// The texts that go into a vendor's ticket: one tar file, without secrets. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "slurm/records.h"

namespace ms::health {

// Evidence of a node that a bundle has twice: before the repair and after it. Without a program: of ms-diag.
struct EvidenceRow {
  std::string file, program;
  std::vector<std::string> words;
};
// The file that slurmd of the node writes its log to; empty: it is the system's journal, or the configuration does not
// say.
std::string slurmd_log_of(const slurm::Config& config, const slurm::Node& node);

// `slurmd_log`: the file that slurmd on that node writes to, empty: the system's journal.
std::vector<EvidenceRow> evidence_rows(const std::string& nvidia_smi, const std::string& slurmd_log);

// The text with "(removed)" for what looks like a secret: the value of an assignment, option or JSON member whose name
// speaks of a token, password, secret, key or credential; what follows "Bearer" or "Basic"; user and password in a URL;
// the path of a URL that is a webhook; words that begin as known tokens do; private keys. It looks at the form only, so
// a secret in plain prose stays.
std::string without_secrets(std::string_view text);

// A file of a tar archive (ustar), without secrets, mode 0600; the archive is the files, then tar_end().
std::string tar_file(const std::string& name, std::string_view text, double wall_s);
std::string tar_end();

}  // namespace ms::health
