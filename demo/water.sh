#!/bin/sh
# Molecular dynamics of a box of water with GROMACS, whose threads meet several times in each step.
#
#   water.sh prepare DIRECTORY           makes the box of 887 molecules there: an input of mdrun
#   water.sh run DIRECTORY STEPS TIMES   so many times so many steps, in a new directory in that one
#
# Running, the script becomes mdrun, which gets the signals.
set -eu

# A box of 3 nm, by the force field and the water of Debian's gromacs-data.
prepare() {
  cat >water.top <<END
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"

[ system ]
Water

[ molecules ]
END
  # The number of steps is mdrun's to say.
  cat >water.mdp <<END
integrator = md
dt = 0.002
nsteps = 0
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
constraints = h-bonds
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
gen-temp = 300
gen-seed = 1
ld-seed = 1
END
  gmx -quiet solvate -cs spc216.gro -box 3 3 3 -p water.top -o water.gro
  gmx -quiet grompp -f water.mdp -c water.gro -p water.top -o water.tpr -po all.mdp
}

case $1 in
  prepare)
    cd "$2"
    prepare
    ;;
  run)
    cd "$(mktemp -d "$2/run.XXXXXX")"
    exec gmx -quiet mdrun -s ../water.tpr -nsteps $(($3 * $4))
    ;;
esac
