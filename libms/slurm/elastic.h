// The words that ms-driver and ms-loan say to each other about an elastic run, in the comments of its job: other users
// cannot write them, and neither tool has to know where the other runs.
#pragma once

#include <string_view>

namespace ms::slurm {

// The driver's comment begins so, before the number of nodes that the run needs at least.
inline constexpr std::string_view kElasticComment = "ms-driver: elastic from ";
// ms-loan's admin comment begins so, before the nodes that the run is to let go of. Users cannot write it.
inline constexpr std::string_view kGiveBackComment = "ms-loan: give back ";

}  // namespace ms::slurm
