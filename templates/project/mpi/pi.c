/* Computes pi by numerical integration over all ranks of MPI_COMM_WORLD. Replace it by your own program.
   Rank 0 appends its metrics as a JSON line to $HPCSWEEP_METRICS. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  long n = argc > 1 ? atol(argv[1]) : 1000;
  double begin = MPI_Wtime(), part = 0, pi = 0;
  for (long i = rank; i < n; i += size) {
    double x = (i + 0.5) / n;
    part += 4 / (1 + x * x) / n;
  }
  MPI_Reduce(&part, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    const char *path = getenv("HPCSWEEP_METRICS");
    FILE *file = path ? fopen(path, "a") : stdout;
    if (file == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    fprintf(file, "{\"pi\": %.15g, \"error\": %.3g, \"processes\": %d, \"seconds\": %.6f}\n", pi,
            fabs(pi - acos(-1.0)), size, MPI_Wtime() - begin);
    fclose(file);
  }
  MPI_Finalize();
  return 0;
}
