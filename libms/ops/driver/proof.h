// How a command of ms-driver proves itself to the others: by MUNGE, whose socket Slurm or its configuration names.
#pragma once

#include <memory>
#include <string>

#include "driver/credential.h"

namespace ms::driver {

struct Proof {
  std::string socket;  // of munged; empty: the usual one
  std::unique_ptr<Credentials> credentials;
};

// Slurm says where munged listens. A controller that hangs must not end a run that could do without it: a file says so
// then, or munged is where it usually is. `slurm_conf`: the file that the environment names, or empty. Waits a minute
// at most; throws Error("driver.munge", node), or ("driver.slurm", slurm) where Slurm did not say, if no credential can
// be made.
Proof prove_ourselves(const std::string& slurm_conf);

}  // namespace ms::driver
