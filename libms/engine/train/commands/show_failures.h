// The cost of failures to a job, for people and for programs. Pure.
#pragma once

#include <string>

#include "train/simulate/failure_study.h"

namespace ms::train {

std::string failures_text(const FailureStudy& study);
// {"schema":1,"nodes":..,"spares":..,"days":..,"driver":..,"seeds":..,"iteration_s":..,"interval_s":..,"effective":..,
//  "effective_error":..,"parts":{..},"interruptions":..,"requeues":..,"given_up":..,
//  "faults":{"per_node_day":..,"mean_repair_s":..},"intervals":[..],"best_interval_s":..,"daly":{..},
//  "spare_choices":[..],"best_spares":..}; errors are two standard errors of the mean over the seeds.
std::string failures_json(const FailureStudy& study);

}  // namespace ms::train
