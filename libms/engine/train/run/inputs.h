// Checks what a run reads before anything is written or started.
#pragma once

#include "train/config.h"

namespace ms::train {

// Opens the data as the loaders of the run will, and what checkpoint.load names. Refuses what cannot be trained on, and
// warns of validation samples without targets. `fresh` as in TrainerOptions.
void check_inputs(const Loaded& loaded, bool fresh);

}  // namespace ms::train
