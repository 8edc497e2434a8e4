// How often to save. Pure.
#pragma once

namespace ms::ckpt {

// The time between saves that loses least, given what one save costs the run and the mean time between failures of the
// whole job: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22
// (2006), eq. 37; Young's sqrt(2 cost mtbf) is its first term. Seconds; cost and mtbf above 0.
double daly_interval_s(double cost_s, double mtbf_s);

}  // namespace ms::ckpt
