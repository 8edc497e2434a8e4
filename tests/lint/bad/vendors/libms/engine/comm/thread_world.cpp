#include <mpi.h>
#include <mpi_like.h>
