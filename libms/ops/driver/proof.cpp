#include "driver/proof.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "slurm/commands.h"

namespace ms::driver {
namespace {

constexpr double kSlurmAnswer_s = 5;
constexpr int kTries = 6;  // of Slurm, and as long between two of them as for an answer
constexpr const char* kUsualConf = "/etc/slurm/slurm.conf";
constexpr const char* kConfiglessConf = "/run/slurm/conf/slurm.conf";  // slurmd's, which it got from the controller

// Where a file of Slurm's configuration says that munged listens; empty: no file says it.
std::string socket_in_files(const std::string& slurm_conf) {
  for (const std::string& path : {slurm_conf, std::string(kUsualConf), std::string(kConfiglessConf)}) {
    if (path.empty() || access(path.c_str(), R_OK) != 0) continue;
    return munge_socket_in_conf(read_file(path));
  }
  return {};
}

}  // namespace

Proof prove_ourselves(const std::string& slurm_conf) {
  const slurm::CommandOptions slurm{.conf = slurm_conf, .deadline_s = kSlurmAnswer_s};
  const bool is_slurm_here = access(slurm.scontrol.c_str(), X_OK) == 0;
  for (int tries = 1;; ++tries) {
    std::string silence;
    Proof proof;
    try {
      const slurm::Config config = slurm::Commands(slurm).config();
      const auto found = config.find("AuthInfo");
      if (found != config.end()) proof.socket = munge_socket(found->second);
    } catch (const Error& error) {
      silence = error.message();
      proof.socket = socket_in_files(slurm_conf);
    }
    proof.credentials = munge_credentials(proof.socket);
    try {
      static_cast<void>(proof.credentials->seal("ms-driver"));
      if (!silence.empty()) log::warn("driver", "Slurm does not say where munged listens: {}", silence);
      return proof;
    } catch (const Error& error) {
      if (silence.empty()) throw;
      if (tries == kTries || !is_slurm_here) {
        throw Error(
            "driver.slurm", Blame::slurm,
            fmt::format("Slurm does not say where munged listens ({}), and without that: {}", silence, error.message()),
            "does 'scontrol ping' answer? A readable slurm.conf, in SLURM_CONF, does as well");
      }
      log::warn("driver", "Slurm does not say where munged listens, it is asked again: {}", silence);
      std::this_thread::sleep_for(std::chrono::duration<double>(kSlurmAnswer_s));
    }
  }
}

}  // namespace ms::driver
