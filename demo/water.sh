#!/bin/sh
# Molecular dynamics of a box of water with GROMACS, whose threads meet several times in each step.
#
#   water.sh prepare DIRECTORY           makes a box of some 1,700 molecules there, for mdrun
#   water.sh run DIRECTORY STEPS TIMES   so many times so many steps, in a new directory of that one
#
# Running, the script becomes mdrun, which gets the signals.
set -eu

# input NAME INTEGRATOR BOX VELOCITIES: an input of mdrun, whose number of steps mdrun can be given.
input() {
  cat >"$1.mdp" <<END
integrator = $2
dt = 0.002
nsteps = 200
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
constraints = h-bonds
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = $4
gen-temp = 300
gen-seed = 1
ld-seed = 1
END
  gmx -quiet grompp -f "$1.mdp" -c "$3" -p water.top -o "$1.tpr" -po all.mdp
}

# Water and force field are of the package gromacs-data. Molecules that are too near to each other,
# where copies of its box of 216 meet, part before anything moves.
prepare() {
  cat >water.top <<END
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"

[ system ]
Water

[ molecules ]
END
  gmx -quiet solvate -cs spc216.gro -box 3.72412 -p water.top -o full.gro
  input apart steep full.gro no
  gmx -quiet mdrun -s apart.tpr -deffnm apart
  input water md apart.gro yes
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
