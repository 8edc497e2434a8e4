// Preloaded into a rank: kills or stops it inside MPI_Init, where no fault of MS_FAULT can strike yet.
//   INIT_FAULT="RANK SIGNAL"   the signal's number
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided);

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const char *fault = getenv("INIT_FAULT"), *own = getenv("OMPI_COMM_WORLD_RANK");
  int rank = -1, number = 0;
  if (fault != NULL && own != NULL && sscanf(fault, "%d %d", &rank, &number) == 2 && rank == atoi(own)) raise(number);
  int (*next)(int*, char***, int, int*) = NULL;
  *(void**)&next = dlsym(RTLD_NEXT, "MPI_Init_thread");
  return next(argc, argv, required, provided);
}
