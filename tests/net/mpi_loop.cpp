// A plain loop over MPI's own collectives, as the OSU benchmarks have it: what `ms-netcheck collectives` is compared
// with.   usage: mpirun -np N mpi_loop ITERATIONS BYTES...   (a line for each: name, bytes, middle time in us)
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
  for (int a = 2; a < argc; ++a) {
    const int bytes = std::atoi(argv[a]) / (4 * size) * (4 * size), words = bytes / 4, part = words / size;
    std::vector<float> in(static_cast<std::size_t>(words), 1), out(static_cast<std::size_t>(words));
    const std::vector<std::pair<std::string, std::function<void()>>> loops{
        {"all_reduce", [&] { MPI_Allreduce(MPI_IN_PLACE, out.data(), words, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
        {"all_gather", [&] { MPI_Allgather(in.data(), part, MPI_FLOAT, out.data(), part, MPI_FLOAT, MPI_COMM_WORLD); }},
        {"reduce_scatter",
         [&] { MPI_Reduce_scatter_block(in.data(), out.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
        {"all_to_all", [&] { MPI_Alltoall(in.data(), part, MPI_FLOAT, out.data(), part, MPI_FLOAT, MPI_COMM_WORLD); }},
        {"broadcast", [&] { MPI_Bcast(out.data(), words, MPI_FLOAT, 0, MPI_COMM_WORLD); }},
        {"send_recv", [&] {
           const int other = rank ^ 1;
           if (other >= size) return;
           if (rank % 2 == 0) MPI_Send(in.data(), words, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
           if (rank % 2 == 1) MPI_Recv(out.data(), words, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
         }}};
    for (const auto& [name, run] : loops) {
      std::vector<double> seconds;  // of the slowest rank each
      for (int i = 0; i < iterations + 2; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        run();
        double mine = MPI_Wtime() - begin, slowest = 0;
        MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (i >= 2) seconds.push_back(slowest);
      }
      std::sort(seconds.begin(), seconds.end());
      if (rank == 0) std::printf("%s %d %.1f\n", name.c_str(), bytes, 1e6 * seconds[seconds.size() / 2]);
    }
  }
  MPI_Finalize();
}
